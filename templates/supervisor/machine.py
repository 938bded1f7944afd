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
    from collections.abc import Callable

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
        self._blame(attempts.cause, attempts.cause_node, attempts.last_lines)
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
        self._incarnations: dict[str, str] = {}
        self._boots: dict[str, str] = {}
        self._began = 0.0  # the session; on the head then the join, then the engine
        self._resume_at = 0.0
        self._memory = MemoryWait(0.0)
        self._booted = False
        self._in_vain = attempts.count  # starts in a row that did not get ready
        self._handlers: dict[str, Callable[[], None]] = {
            "booting": self._booting,
            "waiting-address": self._waiting_address,
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
            node=self.settings.node,
            session=self.session,
            phase=self.shown,
            left=self.left,
            cause=self.cause,
            cause_node=self.cause_node,
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

    def _blame(self, cause: str, node: str = "", lines: tuple[str, ...] = ()) -> None:
        self.cause, self.cause_node, self.last_lines = cause, node, lines

    def _leave(self) -> None:
        self.left = self.session or self.left
        self.session, self.silent, self.verifying = "", (), False

    def _clean(self, failure: Failure | None) -> None:
        self._asked.clear()
        self._answers.clear()
        self._leave()
        self.members, self.missing = (), ()
        self._keep(replace(self.attempts, open=False))
        self._number += 1
        self._asked["clean"] = (self._number, self.now + CLEAN_LIMIT_S)
        self._effects.append(Clean(self._number, failure))

    def _fail(self, failure: Failure) -> None:
        self._blame(failure.cause, failure.node, failure.lines)
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
            self._blame(failure.cause, failure.node)
            serving = self.phase in ("serving", "suspect")
            self._keep((self.attempts if serving else self.attempts.given_back()).failed(failure))

    def _asked_anew(self, run: str) -> None:
        ready = self.phase in ("serving", "suspect")
        self._keep(self.attempts.asked_anew(run, count=1 if self.session and not ready else 0, ready=ready))
        self._blame("")
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
            self._answers.clear()
            self._resume()

    def _resume(self) -> None:
        """Go on after the container has been started: as decided before, if it was."""
        if self.seen.desired.down:
            self._enter("down")
        elif self.attempts.gave_up:
            self._enter("gave-up", self.cause)
        elif self.attempts.count >= self.attempts.limit(self.limits):
            self._give_up(self.cause or "the last attempt did not get ready")
        else:
            self._waiting_address()

    def _waiting_address(self) -> None:
        error = self.seen.address_error
        self._enter("waiting-address" if error else self.waiting, error)

    def _cleaning(self) -> None:
        if self._answer("clean") is not None:
            self._after_clean()

    def _after_clean(self) -> None:
        if self.attempts.count >= self.attempts.limit(self.limits):
            self._give_up(self.cause)
        else:
            self._back_off()

    def _give_up(self, cause: str) -> None:
        self.cause = cause
        self._keep(replace(self.attempts, gave_up=True, cause=cause))
        self._enter("gave-up", cause)

    def _back_off(self) -> None:
        self._memory = MemoryWait(self.now)
        self._enter("backing-off", self.cause)

    def _backing_off(self) -> None:
        if self._memory.over(self.now, self.seen.available_kb) and self.now >= self._resume_at:
            self._waiting_address()

    def _gave_up(self) -> None:
        if not self.attempts.gave_up:
            self._waiting_address()

    def _down(self) -> None:
        if "clean" in self._asked:
            return
        self._answers.clear()
        if not self.seen.desired.down:
            self._resume()

    # -- sessions

    def _begin_session(self, session: str, attempts: Attempts) -> None:
        self.session, self.logs, self._began = session, _new_logs(), self.now
        self._incarnations = {name: view.beat.incarnation for name, view in self.seen.peers.items()}
        self._boots = {name: view.beat.boot for name, view in self.seen.peers.items()}
        self._keep(attempts)
        self._effects.append(StartRay(session))
        self._ask("cache", DROP_CACHE_LIMIT_S)
        self._enter("starting-ray")

    def _lost_peer(self, name: str) -> Failure | None:
        """The peer is silent for too long, or is not the one that the session began with."""
        view = self.seen.peers[name]
        if view.age_s > self.limits.peer_timeout_s:
            what = f"nothing heard from {name} for {self.limits.peer_timeout_s:.0f} s"
            return Failure(what, name, peer_lost=True)
        if view.beat.incarnation != self._incarnations[name]:
            rebooted = view.beat.boot != self._boots[name]
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
