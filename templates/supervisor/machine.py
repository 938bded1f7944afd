"""What both roles decide alike. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from supervisor.attempts import Attempts, Failure, backoff_s
from supervisor.beat import Beat
from supervisor.log import EngineLog
from supervisor.step import Answer, Ask, Clean, Effect, Question, SaveAttempts, Seen, StartRay
from supervisor.watching import MemoryWait

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from supervisor.hearing import PeerView
    from supervisor.settings import Settings

RAY_START_LIMIT_S = 60.0
DROP_CACHE_LIMIT_S = 30.0
CLEAN_LIMIT_S = 60.0
GRACE_S = 5.0  # a helper thread that is this late will not answer


class Machine:
    """
    What both roles share: booting, waiting for the address, cleaning, being down, the attempts.

    `step` is given the time and what is seen, changes this object, and returns what is to be done. It reads no
    clock and touches nothing else. A question has an answer in a later step, or counts as failed.
    """

    waiting: str  # the phase that follows once the address is there

    def __init__(self, settings: Settings, attempts: Attempts, incarnation: str) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.attempts = attempts
        self.incarnation = incarnation
        self.phase = "booting"
        self.progress = ""
        self.session = ""
        self.left = ""  # the last session this node was in
        self.ray_up = False  # in this session: the head's listens, a worker's has joined
        self.missing: tuple[str, ...] = ()
        self.members: tuple[str, ...] = ()
        self.silent: tuple[str, ...] = ()  # peers not heard for link_lost_s, in a session
        self.verifying = False  # they are heard again, and the engine has not yet proved that it lives
        self.logs = _new_logs()
        self.moved = False  # a log line of this step has shown progress
        self.now = 0.0
        self.seen = Seen()
        self._effects: list[Effect] = []
        self._number = 0
        self._asked: dict[Question, tuple[int, float]] = {}
        self._answers: dict[Question, Answer] = {}
        self._peers_then: Mapping[str, PeerView] = {}  # as they were when the session began
        self._began = 0.0  # the session; on the head then the join, then the engine
        self._resume_at = 0.0
        self._memory = MemoryWait(0.0)
        self._booted = False
        self._in_vain = attempts.count  # starts in a row that did not get ready
        self._handlers: dict[str, Callable[[], None]] = {
            "booting": self._booting,
            "waiting-address": self._waiting_address,
            self.waiting: self._waiting_for_peers,
            "failed": self._cleaning,
            "backing-off": self._backing_off,
            "gave-up": self._gave_up,
            "down": self._down,
        }

    def step(self, now: float, seen: Seen) -> list[Effect]:
        self.now, self.seen, self._effects = now, seen, []
        self._read_lines()
        self._take_answers()
        self._obey()
        if self.session:
            self._in_session()
        self._handlers[self.phase]()
        return self._effects

    @property
    def shown(self) -> str:
        return "link-lost" if self.silent or self.verifying else self.phase

    @property
    def transport(self) -> str:
        return self.logs["vllm"].transport

    def said(self) -> Beat:
        """What the peers are told; who says it and the proof of freshness are added by `Hearing`."""
        return Beat(
            session=self.session,
            ray=self.ray_up,
            phase=self.shown,
            left=self.left,
            cause=self.attempts.cause,
            cause_node=self.attempts.cause_node,
        )

    def crashed(self, error: str) -> list[Effect]:
        """Treat a bug of our own as a failed attempt."""
        self._effects = []
        self._fail(Failure(f"internal error of the supervisor: {error}", self.settings.node))
        return self._effects

    def stopped(self) -> list[Effect]:
        """The container is stopped by its engine or an operator: what it was in the middle of costs nothing."""
        self._effects = []
        self._told("to stop its container")
        self._leave()
        self._enter("down", "the container was told to stop")
        return self._effects

    # -- asking

    def _ask(self, question: Question, limit_s: float) -> None:
        if question in self._asked or question in self._answers:
            return
        self._number += 1
        self._asked[question] = (self._number, self.now + limit_s + GRACE_S)
        self._effects.append(Ask(self._number, question, limit_s))

    def _answer(self, question: Question) -> Answer | None:
        return self._answers.pop(question, None)

    def _take_answers(self) -> None:
        for answer in self.seen.answers:
            if self._asked.get(answer.question, (0, 0.0))[0] == answer.number:
                del self._asked[answer.question]
                self._answers[answer.question] = answer
        for question, (number, deadline) in list(self._asked.items()):
            if self.now > deadline:
                del self._asked[question]
                self._answers[question] = Answer(number, question, error="TimeoutError: nothing heard")

    def _read_lines(self) -> None:
        self.moved = False
        for source, line in self.seen.lines:
            self.moved |= self.logs[source].feed(line)

    # -- moving

    def _enter(self, phase: str, progress: str = "") -> None:
        self.phase, self.progress = phase, progress

    def _keep(self, attempts: Attempts) -> None:
        if attempts != self.attempts:
            self.attempts = attempts
            self._effects.append(SaveAttempts(attempts))

    def _leave(self) -> None:
        self.left = self.session or self.left
        self.session, self.silent, self.verifying = "", (), False

    def _clean(self, failure: Failure | None) -> None:
        self._asked.clear()
        self._answers.clear()
        self._leave()
        self.ray_up, self.members, self.missing = False, (), ()
        self._keep(replace(self.attempts, open=False))
        self._number += 1
        self._asked["clean"] = (self._number, self.now + CLEAN_LIMIT_S)
        self._effects.append(Clean(self._number, failure))

    def _fail(self, failure: Failure) -> None:
        self._keep(self.attempts.failed(failure))
        self._resume_at = self.now + backoff_s(self._in_vain)
        self._clean(failure)
        self._enter("failed", failure.cause)

    def _obey(self) -> None:
        desired = self.seen.desired
        if desired.down and self.phase not in ("down", "booting"):
            self._told("to go down")
            self._clean(None)
            self._enter("down")
        if desired.run and desired.run != self.attempts.run:
            self._asked_anew(desired.run)

    def _told(self, what: str) -> None:
        """A session that ends because somebody wants it to: the peers are told so."""
        if self.session:
            failure = Failure(f"{self.settings.node} was told {what}", self.settings.node)
            serving = self.phase in ("serving", "suspect")
            self._keep((self.attempts if serving else self.attempts.given_back()).failed(failure))

    def _asked_anew(self, run: str) -> None:
        """The attempt that is under way is the first; a worker has none: the head counts, for both."""
        ready = self.phase in ("serving", "suspect")
        count = min(1, self.attempts.count) if self.session and not ready else 0
        self._keep(self.attempts.asked_anew(run, count=count, ready=ready))
        self._resume_at = self.now

    # -- phases

    def _booting(self) -> None:
        if not self._booted:
            self._booted = True
            self._clean(None)
        elif "clean" in self._asked:
            return
        elif not self.seen.token:
            self.progress = "run/secrets.env has no SPARK_DEPLOY_TOKEN"
        else:
            self._resume()

    def _resume(self) -> None:
        """Go on after the container has been started: as decided before, if it was."""
        if self.seen.desired.down:
            self._enter("down")
        elif self.attempts.spent(self.limits):
            self._enter("gave-up", self.attempts.cause)
        else:
            self._waiting_address()

    def _waiting_address(self) -> None:
        error = self.seen.address_error
        self._enter("waiting-address" if error else self.waiting, error)

    def _waiting_for_peers(self) -> None:
        if self.seen.address_error:
            self._waiting_address()
        else:
            self._look_for_peers()

    def _look_for_peers(self) -> None:
        raise NotImplementedError

    def _cleaning(self) -> None:
        if self._answer("clean") is not None:
            self._memory = MemoryWait(self.now)
            self._enter("gave-up" if self.attempts.spent(self.limits) else "backing-off", self.attempts.cause)

    def _backing_off(self) -> None:
        if self._memory.over(self.now, self.seen.available_kb) and self.now >= self._resume_at:
            self._waiting_address()

    def _gave_up(self) -> None:
        if not self.attempts.spent(self.limits):
            self._waiting_address()

    def _down(self) -> None:
        if "clean" not in self._asked and not self.seen.desired.down:
            self._resume()

    # -- sessions

    def _begin_session(self, session: str, attempts: Attempts) -> None:
        self.session, self.logs, self._began = session, _new_logs(), self.now
        self._peers_then = self.seen.peers
        self._keep(attempts)
        self._effects.append(StartRay(session))
        self._ask("cache", DROP_CACHE_LIMIT_S)
        self._enter("starting-ray")

    def _in_session(self) -> None:
        if failure := self._session_failure():
            self._fail(failure)
        else:
            self._look_at_link()

    def _session_failure(self) -> Failure | None:
        raise NotImplementedError

    def _lost_peer(self, name: str) -> Failure | None:
        """The peer is silent for too long, or is not the one that the session began with."""
        view, then = self.seen.peers[name], self._peers_then[name]
        if not then.beat.incarnation:
            return None  # another worker, not heard from here: the head knows whether it is there
        if view.age_s > self.limits.peer_timeout_s:
            what = f"nothing heard from {name} for {self.limits.peer_timeout_s:.0f} s"
            return Failure(what, name, peer_lost=True)
        if view.beat.incarnation != then.beat.incarnation:
            rebooted = view.beat.boot != then.beat.boot
            what = "was rebooted" if rebooted else "restarted its container"
            return Failure(f"{name} {what}", name, peer_lost=rebooted)
        return None

    def _look_at_link(self) -> None:
        """Show a silence, and when it began; nothing is killed for it."""
        limit_s = self.limits.link_lost_s
        self.silent = tuple(name for name, view in self.seen.peers.items() if view.age_s > limit_s)
        if self.silent:
            self.progress = f"nothing heard from {', '.join(self.silent)}"

    def _ray_failure(self) -> Failure | None:
        if "ray" not in self.seen.exits:
            return None
        log = self.logs["ray"]
        why = f"ray exited with {self.seen.exits['ray']}" + (f": {log.cause}" if log.cause else "")
        return Failure(why, self.settings.node, tuple(log.tail))


def _new_logs() -> dict[str, EngineLog]:
    return {"ray": EngineLog(), "vllm": EngineLog()}
