"""How the head starts a session: its peers, its Ray, the verified join, `vllm serve`. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from supervisor.attempts import Attempts, Failure
from supervisor.machine import RAY_START_LIMIT_S, Machine
from supervisor.members import Problem, members_problem
from supervisor.step import Answer, StartEngine
from supervisor.watching import Activity, Stillness

if TYPE_CHECKING:
    from supervisor.beat import Beat
    from supervisor.settings import Settings

MEMBERS_LIMIT_S = 10.0
MEMBERS_EVERY_S = 3.0  # the child imports Ray: a second of CPU
HEALTH_EVERY_S = 1.0
HEALTH_LIMIT_S = 5.0
FIRST_PROBE_LIMIT_S = 600.0  # the first request compiles kernels
SETTLE_S = 1.0  # after vLLM ended: for its last lines, and for what a peer has to say


class StartingHead(Machine):
    """The head up to an engine that answers /health; `HeadMachine` goes on from there."""

    waiting = "waiting-peers"
    _problem: Problem  # of this session's join
    _stillness: Stillness  # of this start of the engine

    def __init__(self, settings: Settings, attempts: Attempts, incarnation: str) -> None:
        super().__init__(settings, attempts, incarnation)
        self._sessions = 0
        self._joined: set[str] = set()
        self._ending = ""  # what was seen of vLLM's end, and when
        self._ended_at = 0.0
        self._next_look = 0.0
        self._handlers |= {
            "starting-ray": self._starting_ray,
            "joining": self._joining,
            "starting-engine": self._starting_engine,
        }

    def said(self) -> Beat:
        return replace(super().said(), session=self.session if self.ray_up else "")

    # -- waiting

    def _look_for_peers(self) -> None:
        waits = {name: self._why_not(name) for name in self.settings.peers}
        self.missing = tuple(name for name, why in waits.items() if why)
        self.progress = "waiting for " + ", ".join(f"{name} ({why})" for name, why in waits.items() if why)
        if not self.missing:
            self._begin()

    def _why_not(self, name: str) -> str:
        view = self.seen.peers[name]
        if name in self.seen.foreign_release:
            return f"runs release {self.seen.foreign_release[name]}"
        if not view.here:
            return "not heard"
        if view.beat.phase != "waiting-head":
            return view.beat.phase or "no phase"
        return ""

    def _begin(self) -> None:
        self._in_vain += 1
        self._sessions += 1
        self._joined, self._ending = set(), ""
        self._problem = members_problem(self.settings, [])
        self._begin_session(f"{self.incarnation}-{self._sessions}", self.attempts.started())

    # -- a session

    def _look_at_link(self) -> None:
        was_silent = self.silent
        super()._look_at_link()
        if self.silent:
            self.verifying = False
        elif was_silent:
            self._link_is_back(was_silent)

    def _session_failure(self) -> Failure | None:
        for name in self.settings.peers:
            if failure := self._lost_peer(name) or self._left(name):
                return failure
        return self._ray_failure() or self._engine_failure() or self._wrong_transport()

    def _left(self, name: str) -> Failure | None:
        beat = self.seen.peers[name].beat
        if beat.session == self.session:
            self._joined.add(name)
        elif beat.left == self.session:
            return Failure(beat.cause, beat.cause_node or name, beat.lines)
        elif name in self._joined:
            return Failure(f"{name} left the session: it is {beat.phase}", name, beat.lines)
        return None

    def _engine_failure(self) -> Failure | None:
        """Any exit is one, 0 too; after a moment for its last lines, and for a peer to say why."""
        if "vllm" in self.seen.exits:
            self._note_end(f"vllm exited with {self.seen.exits['vllm']}")
        if not self._ending or self.now < self._ended_at + SETTLE_S:
            return None
        return self._of_engine(self._ending, self.settings.node)

    def _note_end(self, what: str) -> None:
        if not self._ending:
            self._ending, self._ended_at = what, self.now

    def _of_engine(self, what: str, node: str = "") -> Failure:
        """*what* happened, why by the engine's own log, where if that is known, and the last lines of all."""
        log, nodes = self.logs["vllm"], self.settings.nodes
        why = log.cause
        for ip, name in nodes.items():
            why = re.sub(rf"(?<![\d.]){re.escape(ip)}(?![\d.])", f"{name} ({ip})", why)
        lines = [*self._lines_of_peers(), *log.tail]
        return Failure(f"{what}: {why}" if why else what, nodes.get(log.ip, node), tuple(lines))

    def _lines_of_peers(self) -> list[str]:
        return [f"[{name}] {line}" for name, view in self.seen.peers.items() for line in view.beat.lines]

    def _wrong_transport(self) -> Failure | None:
        if self.settings.transport != "rdma" or self.transport != "NET/Socket":
            return None
        return self._of_engine(
            "transport is NET/Socket (TCP), wanted NET/IB (RDMA): see /dev/infiniband, memlock, hcas"
        )

    def _link_is_back(self, names: tuple[str, ...]) -> None:
        self.progress = f"{', '.join(names)} heard again"

    # -- phases of a session

    def _starting_ray(self) -> None:
        answer = self._answer("port")
        if answer and answer.value:
            self.ray_up, self._began, self._next_look = True, self.now, self.now + MEMBERS_EVERY_S
            self._enter("joining")
        elif self.now - self._began > RAY_START_LIMIT_S:
            what = f"Ray does not listen on {self.settings.ray_address} after {RAY_START_LIMIT_S:.0f} s"
            self._fail(Failure(what, self.settings.node, tuple(self.logs["ray"].tail)))
        else:
            self._ask("port", 1.0)

    def _joining(self) -> None:
        if answer := self._answer("members"):
            self._note_members(answer)
        if not self._problem.text:
            self._start_engine_when_cache_is_dropped()
        elif self._problem.hopeless or self.now - self._began > self.limits.join_limit_s:
            self._fail(self._not_joined())
        elif self.now >= self._next_look or all(view.beat.ray for view in self.seen.peers.values()):
            self._ask("members", MEMBERS_LIMIT_S)

    def _note_members(self, answer: Answer) -> None:
        members: list[tuple[str, float]] = answer.value or []
        self._next_look = self.now + MEMBERS_EVERY_S
        self._problem = members_problem(self.settings, members)
        self.members, self.missing = tuple(ip for ip, _ in members), self._problem.missing
        self.progress = answer.error or f"waiting for {', '.join(self.missing)}"

    def _not_joined(self) -> Failure:
        missing = self._problem.missing
        node = missing[0] if missing else self.settings.node
        limit = "" if self._problem.hopeless else f" in {self.limits.join_limit_s:.0f} s"
        own = tuple(self.logs["ray"].tail)
        lines = self.seen.peers[node].beat.lines if node in self.seen.peers else own
        return Failure(f"{self._problem.text}{limit}", node, lines or own)

    def _start_engine_when_cache_is_dropped(self) -> None:
        if "cache" in self._asked:
            self.progress = "giving page cache back"
            return
        self._effects.append(StartEngine(self.session))
        self._began, self._next_look = self.now, self.now
        self._stillness = Stillness(self.now, self.limits.stuck_s, nodes=len(self.settings.nodes))
        self.missing = ()
        self._enter("starting-engine", "vllm starting")

    def _starting_engine(self) -> None:
        if not self.silent:
            self.progress = self.logs["vllm"].progress.text or self.progress
        if self.moved:
            self._stillness.moved(self.now)
        answer = self._answer("health")
        if answer:
            self._next_look = self.now + HEALTH_EVERY_S
        if answer and answer.value == 200:
            self._ask("probe", max(self.limits.probe_s, FIRST_PROBE_LIMIT_S))
            self._enter("probing", "a one-token completion")
        elif failure := self._too_long():
            self._fail(failure)
        elif self.now >= self._next_look:
            self._ask("health", HEALTH_LIMIT_S)

    def _too_long(self) -> Failure | None:
        limit = self.limits.start_limit_s
        if self.now - self._began > limit:
            return self._of_engine(f"not ready in {limit:.0f} s, last seen: {self.progress}")
        if not self.silent and self._stillness.stuck(self.now, self._activity()):
            still = f"stuck: nothing read, computed or said for {self.limits.stuck_s:.0f} s"
            return self._of_engine(f"{still}, last seen: {self.progress}")
        return None

    def _activity(self) -> Activity:
        beats = [view.beat for view in self.seen.peers.values()]
        return Activity(
            self.seen.activity.read_bytes + sum(beat.read_bytes for beat in beats),
            self.seen.activity.cpu_s + sum(beat.cpu_s for beat in beats),
        )
