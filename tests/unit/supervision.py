"""What the tests of templates/supervisor/ share: a two-node deployment, a stage with a fake clock."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from supervisor.attempts import Attempts
from supervisor.beat import Beat
from supervisor.head import HeadMachine
from supervisor.hearing import PeerView
from supervisor.settings import Desired, Limits, Settings
from supervisor.step import Answer, Clean, SaveAttempts, Seen, Watch
from supervisor.watching import Counters
from supervisor.worker import WorkerMachine

HEAD, WORKER = "spark-1", "spark-2"
IPS = {HEAD: "192.168.200.1", WORKER: "192.168.200.2", "spark-3": "192.168.200.3"}
RELEASE = "abc123abc123"


def settings(node: str = HEAD, *, nodes: int = 2, transport: str = "tcp", **limits: float) -> Any:
    names = list(IPS)[:nodes]
    return Settings(
        deployment="home",
        node=node,
        role="head" if node == HEAD else "worker",
        fabric_ip=IPS[node],
        peers={name: IPS[name] for name in names if name != node},
        head_ip=IPS[HEAD],
        ray_port=6379,
        heartbeat_port=6378,
        api_host="127.0.0.1",
        api_port=8000,
        served_name="tiny",
        model="org/tiny",
        transport=transport,
        limits=Limits(**limits),
    )


def attempts(**values: Any) -> Any:
    return Attempts(**{"release": RELEASE, "boot_id": "b1", "run": "run-1"} | values)


@dataclass
class Stage:
    """One machine, and a world that changes only when told to. Effects are collected, nothing is done."""

    node: str = HEAD
    nodes: int = 2
    transport: str = "tcp"
    limits: dict[str, float] = field(default_factory=dict)
    attempts: Any = None
    now: float = 1000.0

    def __post_init__(self) -> None:
        kind = HeadMachine if self.node == HEAD else WorkerMachine
        where = settings(self.node, nodes=self.nodes, transport=self.transport, **self.limits)
        self.machine = kind(where, self.attempts or Attempts(release=RELEASE, boot_id="b1"), "me")
        self.effects: list[Any] = []
        self.saved: list[Any] = []
        self.phases = [self.shown]  # one after the other
        self.exits: dict[str, int] = {}
        self.world: dict[str, Any] = {"desired": Desired(run="run-1")}
        self.heard_at = dict.fromkeys(where.peers, self.now)
        self.beats = {name: self.beat(name) for name in where.peers}
        self.silent: set[str] = set()

    # -- the world

    def beat(self, name: str, **said: Any) -> Any:
        phase = "waiting-head" if name != HEAD else "waiting-peers"
        return Beat(**{"node": name, "incarnation": f"{name}-i1", "boot": "b1", "phase": phase} | said)

    def peer(self, name: str, **said: Any) -> None:
        self.beats[name] = replace(self.beats[name], **said)

    def step(
        self, seconds: float = 0.2, *, lines: tuple[tuple[str, str], ...] = (), answers: tuple = ()
    ) -> list[Any]:
        self.now += seconds
        for name in self.beats:
            if name not in self.silent:
                self.heard_at[name] = self.now
        peers = {name: PeerView(self.now - self.heard_at[name], beat) for name, beat in self.beats.items()}
        seen = Seen(peers=peers, exits=dict(self.exits), lines=lines, answers=answers, **self.world)
        new = self.machine.step(self.now, seen)
        self.effects += new
        self.phases += [self.shown] if self.shown != self.phases[-1] else []
        self.saved += [effect.attempts for effect in new if isinstance(effect, SaveAttempts)]
        if any(isinstance(effect, Clean) for effect in new):
            self.exits.clear()
        return new

    def run(self, seconds: float, tick: float = 0.5) -> None:
        """Let time pass; a serving engine is well, and does not step."""
        end = self.now + seconds
        while self.now < end:
            number = self.asked("watch")
            well = Watch(200, self.machine.__dict__.get("_counters"))
            self.step(tick, answers=(Answer(number, "watch", well),) if number else ())

    def log(self, *lines: str, source: str = "vllm") -> None:
        self.step(lines=tuple((source, line) for line in lines))

    def asked(self, question: str) -> Any:
        """The open question of this kind, None if there is none."""
        return self.machine._asked.get(question, (None,))[0]

    def answer(self, question: str, value: Any = None, error: str = "") -> None:
        number = self.asked(question)
        assert number is not None, f"{question} is not asked in phase {self.machine.phase}"
        self.step(answers=(Answer(number, question, value, error),))

    def wait_for(self, question: str, limit_s: float = 10) -> None:
        """Let time pass until the question is asked."""
        end = self.now + limit_s
        while self.asked(question) is None:
            assert self.now < end, f"{question} is not asked in {limit_s} s, phase {self.machine.phase}"
            self.step()

    # -- the way to serving

    @property
    def shown(self) -> str:
        return self.machine.shown

    def done(self, kind: str) -> list[Any]:
        return [effect for effect in self.effects if type(effect).__name__ == kind]

    def boot(self) -> Stage:
        self.step()
        self.answer("clean")
        self.step()
        return self

    def to_starting_ray(self) -> Stage:
        self.boot()
        self.step()
        assert self.shown == "starting-ray"
        return self

    def to_joining(self) -> Stage:
        self.to_starting_ray()
        self.ray_listens()
        return self

    def ray_listens(self) -> None:
        self.answer("cache", 0)
        self.wait_for("port")
        self.answer("port", value=True)
        assert self.shown == "joining"

    def workers_join(self) -> None:
        for name in self.beats:
            self.peer(name, session=self.machine.session, ray=True, phase="joined")

    def to_starting_engine(self) -> Stage:
        self.to_joining()
        self.finish_joining()
        return self

    def finish_joining(self) -> None:
        self.workers_join()
        self.wait_for("members")
        self.answer("members", [(IPS[name], 1.0) for name in (HEAD, *self.beats)])
        assert self.shown == "starting-engine"

    def to_probing(self) -> Stage:
        self.to_starting_engine()
        self.engine_is_healthy()
        return self

    def engine_is_healthy(self) -> None:
        self.wait_for("health")
        self.answer("health", 200)
        assert self.shown == "probing"

    def to_serving(self) -> Stage:
        self.to_probing()
        self.engine_completes()
        return self

    def engine_completes(self) -> None:
        self.answer("probe", 200)
        assert self.shown == "serving"

    def restart(self) -> None:
        """From a failure back to serving."""
        self.answer("clean")
        for name in self.beats:
            self.peer(name, session="", ray=False, phase="waiting-head")
        end = self.now + 60
        while self.shown != "starting-ray":
            self.step()
            assert self.now < end, self.shown
        self.ray_listens()
        self.finish_joining()
        self.engine_is_healthy()
        self.engine_completes()

    def look(self, *, health: int = 200, requests: float = 0, steps: float = 0) -> None:
        self.wait_for("watch")
        self.answer("watch", Watch(health, Counters(requests, steps)))
