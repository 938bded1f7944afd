"""A worker's decisions. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from supervisor.attempts import Attempts, Failure
from supervisor.machine import RAY_START_LIMIT_S, Machine

if TYPE_CHECKING:
    from supervisor.beat import Beat
    from supervisor.hearing import PeerView
    from supervisor.settings import Settings


class WorkerMachine(Machine):
    """A worker: its Ray lives exactly as long as the head's session. It counts no attempts: the head does."""

    waiting = "waiting-head"

    def __init__(self, settings: Settings, attempts: Attempts, incarnation: str) -> None:
        super().__init__(settings, attempts, incarnation)
        self._handlers |= dict.fromkeys(("starting-ray", "joined", "serving"), self._follow)

    def said(self) -> Beat:
        lines = tuple(self.logs["ray"].tail)[-6:] if not self.ray_up else ()
        return replace(super().said(), lines=lines)

    @property
    def _head(self) -> PeerView:
        return self.seen.peers[self.settings.head]

    def _look_for_peers(self) -> None:
        head, name = self._head, self.settings.head
        self.missing = () if head.here else (name,)
        self.progress = f"{name} is {head.beat.phase}" if head.here else f"{name} is not heard"
        if name in self.seen.foreign_release:
            self.progress = f"{name} runs release {self.seen.foreign_release[name]}"
        if head.here and head.beat.session and head.beat.session != self.left:
            self._begin_session(head.beat.session, replace(self.attempts, open=True))

    def _session_failure(self) -> Failure | None:
        return self._ray_failure() or self._not_started() or self._session_over()

    def _follow(self) -> None:
        self.ray_up = self.ray_up or any("Ray runtime started" in line for line in self.logs["ray"].tail)
        if self.ray_up and not self.silent:
            head = self._head.beat.phase
            phase = "serving" if head in ("serving", "suspect") else "joined"
            self._enter(phase, f"{self.settings.head} is {head}")

    def _not_started(self) -> Failure | None:
        if self.ray_up or self.now - self._began <= RAY_START_LIMIT_S:
            return None
        what = f"ray start did not join {self.settings.ray_address} in {RAY_START_LIMIT_S:.0f} s"
        return Failure(what, self.settings.node, tuple(self.logs["ray"].tail))

    def _session_over(self) -> Failure | None:
        for name in self.settings.peers:
            if failure := self._lost_peer(name):
                return failure
        beat = self._head.beat
        if beat.session == self.session:
            return None
        if beat.left == self.session:
            return Failure(beat.cause, beat.cause_node)
        return Failure(f"{self.settings.head} left the session: it is {beat.phase}", self.settings.head)
