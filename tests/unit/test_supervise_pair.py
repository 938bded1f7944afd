"""Two supervisors' machines and heartbeats over a network that loses, with an engine that dies: no sequence harms."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from supervisor.attempts import Attempts
from supervisor.beat import encode_beat
from supervisor.head import HeadMachine
from supervisor.hearing import Hearing
from supervisor.settings import Desired
from supervisor.step import Answer, Seen, Watch
from supervisor.watching import Activity, Counters
from supervisor.worker import WorkerMachine
from tests.unit.supervision import HEAD, IPS, RELEASE, WORKER, settings

TICK = 0.25
TOKEN = b"5ec4e7"
LIMITS = {"link_lost_s": 5, "peer_timeout_s": 60, "hang_s": 15, "probe_s": 15, "attempts": 5, "stuck_s": 120}


@dataclass
class Node:
    """One container: machine, hearing, what runs in it, and what is on its disk."""

    name: str
    clock: float
    boot: str = "b1"
    saved: Any = None
    life: int = 0
    up: bool = True
    frozen: bool = False
    ray: str = ""  # the session that its Ray is in
    ray_since: float = 0
    engine: str = ""  # the session that vLLM was started in, on the head
    engine_since: float = 0
    hung: bool = False
    exits: dict[str, int] = field(default_factory=dict)
    pending: list[tuple[float, Any]] = field(default_factory=list)  # answers on their way
    said_started: bool = False
    starts: int = 0  # of the engine, since it was last well for an hour or asked for anew

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """The container is started."""
        self.life += 1
        incarnation = f"{self.name}-{self.boot}-{self.life}"
        attempts = (self.saved or Attempts()).resumed(release=RELEASE, boot_id=self.boot, node=self.name)
        kind = HeadMachine if self.name == HEAD else WorkerMachine
        where = settings(self.name, **LIMITS)
        self.machine = kind(where, attempts, incarnation)
        self.hearing = Hearing(where, RELEASE, incarnation)
        self.ray = self.engine = ""
        self.exits, self.pending, self.hung, self.frozen, self.up = {}, [], False, False, True

    @property
    def peer(self) -> str:
        return WORKER if self.name == HEAD else HEAD

    def stop(self) -> None:
        self.up, self.ray, self.engine = False, "", ""

    def kill_ray(self) -> None:
        if self.ray:
            self.ray, self.exits["ray"] = "", 1

    def kill_engine(self) -> None:
        if self.engine:
            self.engine, self.exits["vllm"] = "", 0


class World:
    """The pair, its link, and the laws of Ray and vLLM in a few lines."""

    def __init__(self, seed: int = 0) -> None:
        self.now = 1000.0
        self.dice = random.Random(seed)  # noqa: S311
        self.nodes = {name: Node(name, self.now) for name in (HEAD, WORKER)}
        self.link = {HEAD: 1.0, WORKER: 1.0}  # chance that what this node sends arrives
        self.ups: list[tuple[float, str]] = []
        self.worked = 0.0  # seconds of CPU: an engine that hangs uses none

    @property
    def head(self) -> Node:
        return self.nodes[HEAD]

    @property
    def worker(self) -> Node:
        return self.nodes[WORKER]

    @property
    def linked(self) -> bool:
        return min(self.link.values()) > 0.2

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds / TICK)):
            self.now += TICK
            self.worked += 0 if self.head.hung else TICK
            self.laws()
            for node in self.nodes.values():
                if node.up and not node.frozen:
                    self.turn(node)
            self.check()

    def laws(self) -> None:
        head, worker = self.head, self.worker
        if worker.ray and not head.ray and self.linked and self.now - worker.ray_since > 60:
            worker.kill_ray()  # the raylet notices late that its GCS has gone
        if head.engine and (head.ray != head.engine or worker.ray != head.engine):
            head.kill_engine()
        for at, name in list(self.ups):
            if self.now >= at:
                self.ups.remove((at, name))
                self.nodes[name].begin()

    def turn(self, node: Node) -> None:
        node.hearing.tick(self.now)
        said = replace(node.machine.said(), boot=node.boot)
        datagram = encode_beat(node.hearing.beat_for(node.peer, said), "home", TOKEN)
        peer = self.nodes[node.peer]
        if peer.up and self.dice.random() < self.link[node.name]:
            peer.hearing.hear(datagram, TOKEN, self.now)
        answers = tuple(answer for at, answer in node.pending if at <= self.now)
        node.pending = [(at, answer) for at, answer in node.pending if at > self.now]
        seen = Seen(
            peers=node.hearing.view(self.now),
            desired=Desired(run="run-1"),
            exits=dict(node.exits),
            lines=self.lines(node),
            answers=answers,
            activity=Activity(cpu_s=self.worked),
        )
        for effect in node.machine.step(self.now, seen):
            self.carry_out(node, effect)

    def lines(self, node: Node) -> tuple[tuple[str, str], ...]:
        joins = node.ray and self.head.ray == node.ray and self.now - node.ray_since > 2
        if joins and not node.said_started:
            node.said_started = True
            return (("ray", "Ray runtime started."),)
        return ()

    def carry_out(self, node: Node, effect: Any) -> None:
        kind = type(effect).__name__
        if kind == "SaveAttempts":
            node.saved = effect.attempts
        elif kind == "StartRay":
            node.ray, node.ray_since, node.said_started = effect.session, self.now, False
        elif kind == "StartEngine":
            assert not node.engine, "an engine is started beside another"
            node.engine, node.engine_since = effect.session, self.now
        elif kind == "Clean":
            node.ray = node.engine = ""
            node.exits, node.pending, node.hung = {}, [], False
            self.after(node, 0.5, effect.number, "clean", None)
        else:
            self.answer(node, effect)

    def after(
        self, node: Node, seconds: float, number: int, question: str, value: Any, error: str = ""
    ) -> None:
        node.pending.append((self.now + seconds, Answer(number, question, value, error)))

    def answer(self, node: Node, ask: Any) -> None:
        engine_well = bool(node.engine) and not node.hung and self.now - node.engine_since > 5
        question = ask.question
        if question == "port":
            self.after(node, 0.1, ask.number, question, self.now - node.ray_since > 1 and bool(node.ray))
        elif question == "members":
            rays = [
                name
                for name in self.nodes
                if node.ray and self.nodes[name].ray == node.ray and self.nodes[name].said_started
            ]
            self.after(node, 0.5, ask.number, question, [(IPS[name], 1.0) for name in rays])
        elif question == "cache":
            self.after(node, 0.1, ask.number, question, 1)
        elif question == "probe" and engine_well and self.linked and not self.worker.frozen:
            self.after(node, 0.1, ask.number, question, 200)
        elif question == "probe":
            self.after(node, ask.limit_s, ask.number, question, None, "TimeoutError: timed out")
        elif question == "health":
            self.after(
                node,
                0.1,
                ask.number,
                question,
                200 if engine_well else None,
                "" if engine_well else "refused",
            )
        elif question == "watch":
            well = Watch(200, Counters(0, 1)) if node.engine else None
            self.after(node, 0.1, ask.number, question, well, "" if well else "refused")

    def check(self) -> None:
        """What must hold at every moment."""
        head, worker = self.head, self.worker
        assert not head.engine or head.ray in (head.engine, ""), "vLLM in another session than the head's Ray"
        assert not head.engine or worker.ray in (head.engine, ""), "ranks of two sessions"
        attempts = head.machine.attempts
        assert attempts.count <= attempts.limit(head.machine.limits), "more attempts than the cap"

    def serving(self) -> bool:
        return self.head.machine.shown == self.worker.machine.shown == "serving"

    def settle(self, seconds: float = 240) -> None:
        """The faults are over: machines and link are back."""
        self.link = {HEAD: 1.0, WORKER: 1.0}
        for node in self.nodes.values():
            node.frozen = False
            if not node.up and node.name not in [name for _, name in self.ups]:
                node.begin()
        self.run(seconds)
        if not self.serving():
            self.run(LIMITS["stuck_s"] + seconds)


# -- faults: what they do, in words that a failing example can be read by


def power_cut(world: World, node: Node, seconds: float) -> None:
    node.stop()
    node.boot = f"b{int(world.now)}"
    world.ups = [(at, name) for at, name in world.ups if name != node.name]
    world.ups.append((world.now + seconds, node.name))


def container_restart(world: World, node: Node, seconds: float) -> None:
    node.stop()
    world.ups = [(at, name) for at, name in world.ups if name != node.name]
    world.ups.append((world.now + 1 + seconds / 30, node.name))


def cut_link(world: World, node: Node, _: float) -> None:
    world.link = {HEAD: 0.0, WORKER: 0.0}


def one_way(world: World, node: Node, _: float) -> None:
    world.link[node.name] = 0.0


def mend_link(world: World, node: Node, _: float) -> None:
    world.link = {HEAD: 1.0, WORKER: 1.0}


def lossy(world: World, node: Node, _: float) -> None:
    world.link = {HEAD: 0.7, WORKER: 0.7}


def freeze(world: World, node: Node, _: float) -> None:
    node.frozen = True


def thaw(world: World, node: Node, _: float) -> None:
    node.frozen = False


FAULTS = {
    "kill Ray": lambda world, node, _: node.kill_ray(),
    "kill vLLM": lambda world, node, _: world.head.kill_engine(),
    "hang": lambda world, node, _: setattr(world.head, "hung", True),
    "power cut": power_cut,
    "restart the container": container_restart,
    "cut the link": cut_link,
    "one way": one_way,
    "mend the link": mend_link,
    "30 % loss": lossy,
    "pause the container": freeze,
    "unpause the container": thaw,
}


@hypothesis_settings(
    max_examples=25, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(
    faults=st.lists(
        st.tuples(st.sampled_from(sorted(FAULTS)), st.sampled_from([HEAD, WORKER]), st.floats(0.3, 90)),
        max_size=6,
    ),
    seed=st.integers(0, 99),
)
def test_no_sequence_of_faults_leaves_anything_but_serving_or_given_up(
    faults: list[tuple[str, str, float]], seed: int
) -> None:
    """
    In every moment of it: ranks of one session only, and no more attempts than the cap.
    """
    world = World(seed)
    world.run(30)
    assert world.serving()
    for what, name, seconds in faults:
        FAULTS[what](world, world.nodes[name], seconds)
        world.run(seconds)
    world.settle()

    assert world.serving() or world.head.machine.shown == "gave-up"
    if world.head.machine.shown == "gave-up":
        assert world.head.machine.attempts.cause


@pytest.mark.parametrize(
    "what", [*sorted(set(FAULTS) - {"cut the link", "one way", "30 % loss", "pause the container"})]
)
@pytest.mark.parametrize("name", [HEAD, WORKER])
def test_serving_again_after_one_fault(what: str, name: str) -> None:
    world = World()
    world.run(30)
    FAULTS[what](world, world.nodes[name], 5)
    world.run(5)
    world.settle(90)

    assert world.serving()


@pytest.mark.parametrize("name", [HEAD, WORKER])
@pytest.mark.parametrize("what", ["cut the link", "one way"])
def test_cut_of_twenty_seconds_restarts_nothing(what: str, name: str) -> None:
    world = World()
    world.run(30)
    session = world.head.machine.session
    FAULTS[what](world, world.nodes[name], 0)
    world.run(20)
    shown = [node.machine.shown for node in world.nodes.values()]
    world.settle(10)

    assert shown == ["link-lost", "link-lost"]
    assert world.serving()
    assert world.head.machine.session == session


@pytest.mark.parametrize("name", [HEAD, WORKER])
@pytest.mark.parametrize("what", ["cut the link", "one way", "pause the container"])
def test_cut_of_five_minutes_restarts_both_and_costs_no_attempt(what: str, name: str) -> None:
    world = World()
    world.run(30)
    session = world.head.machine.session
    FAULTS[what](world, world.nodes[name], 0)
    world.run(300)
    world.settle(60)

    assert world.serving()
    assert world.head.machine.session != session
    assert world.head.machine.attempts.count <= 1


def test_two_minutes_of_thirty_percent_loss_are_no_alarm() -> None:
    world = World()
    world.run(30)
    session = world.head.machine.session
    lossy(world, world.head, 0)
    phases = set()
    for _ in range(480):
        world.run(TICK)
        phases.add(world.head.machine.shown)

    assert phases == {"serving"}
    assert world.head.machine.session == session


def test_power_cut_of_both_nodes_heals() -> None:
    world = World()
    world.run(30)
    power_cut(world, world.head, 20)
    power_cut(world, world.worker, 35)
    world.settle(120)

    assert world.serving()
    assert world.head.machine.attempts.count == 1
