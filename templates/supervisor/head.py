"""The head, from an engine that answers on: is it ready, is it well, does it hang? Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from supervisor.start import HEALTH_LIMIT_S, StartingHead
from supervisor.step import Answer, Watch

if TYPE_CHECKING:
    from supervisor.attempts import Attempts, Failure
    from supervisor.settings import Settings
    from supervisor.watching import Counters

WATCH_EVERY_S = 2.0
WATCH_ERRORS = 5


class HeadMachine(StartingHead):
    """The head: the verified readiness, and whether the engine goes on living."""

    def __init__(self, settings: Settings, attempts: Attempts, incarnation: str) -> None:
        super().__init__(settings, attempts, incarnation)
        self._errors = 0  # looks in a row without an answer
        self._counters: Counters | None = None
        self._proved_at = 0.0  # the engine's last step that we know of
        # No doubt for hang_s from here either: a new request, a link that came back.
        self._patient_since = 0.0
        self._probed_at = 0.0
        self._healthy_since = 0.0
        self._linked_steps: float | None = None  # the engine's steps when the link came back
        self._handlers |= {
            "probing": self._probing,
            "serving": self._serving,
            "suspect": self._suspect,
        }

    def _link_is_back(self, names: tuple[str, ...]) -> None:
        super()._link_is_back(names)
        if self.phase in ("serving", "suspect"):
            self._linked_steps = self._counters.steps if self._counters else None
            self.verifying = True
            self.phase = "serving"
            self._asked.pop("probe", None)  # what was asked before says nothing of the link
            self._answers.pop("probe", None)
            self._probe()

    def _probing(self) -> None:
        answer = self._answer("probe")
        if answer and answer.value == 200:
            self._keep(self.attempts.ready())
            self._in_vain, self._errors, self._counters = 0, 0, None
            self._healthy_since = self._proved_at = self._next_look = self.now
            self._enter("serving")
        elif answer:
            self._fail(self._of_engine(f"/health is 200, but a one-token completion failed: {_why(answer)}"))

    def _serving(self) -> None:
        if failure := self._look() or self._probe_failure():
            self._fail(failure)
            return
        if self.now - self._healthy_since >= self.limits.healthy_s and self.attempts.count:
            self._keep(replace(self.attempts, count=0))
        if self.silent or self.verifying:
            self._patient_since = self.now
        elif self.now - max(self._proved_at, self._patient_since) > self.limits.hang_s:
            self._doubt()
        else:
            self.progress = ""

    def _doubt(self) -> None:
        """No sign of life for hang_s: a one-token completion decides; shown only if requests wait for it."""
        self._probe()
        if self._counters and self._counters.requests:
            waiting = f"{self._counters.requests:.0f} requests"
            self._enter("suspect", f"no engine step for {self.limits.hang_s:.0f} s with {waiting}")

    def _look(self) -> Failure | None:
        """Ask the engine for its health and counters every 2 s; give what is wrong with it."""
        answer = self._answer("watch")
        if answer is None:
            if self.now >= self._next_look:
                self._ask("watch", HEALTH_LIMIT_S)
            return None
        self._next_look = self.now + WATCH_EVERY_S
        if not isinstance(answer.value, Watch):
            self._errors += 1
            wrong = f"/health did not answer {WATCH_ERRORS} times: {answer.error}"
            return self._of_engine(wrong) if self._errors >= WATCH_ERRORS else None
        self._errors = 0
        if answer.value.health == 200:
            self._note_counters(answer.value.counters)
        else:
            self._note_end(f"/health answered {answer.value.health}")
        return None

    def _note_counters(self, counters: Counters | None) -> None:
        before = self._counters
        self._counters = counters
        if counters is None or before is None:
            return
        if counters.steps != before.steps:
            self._proved_at = self.now
        if counters.requests and not before.requests:
            self._patient_since = self.now
        if self.verifying and self._linked_steps is not None and counters.steps != self._linked_steps:
            self.verifying = False

    def _probe(self) -> None:
        if "probe" not in self._asked:
            self._probed_at = self.now
            self._ask("probe", self.limits.probe_s)

    def _probe_failure(self) -> Failure | None:
        answer = self._answer("probe")
        if answer is None:
            return None
        if isinstance(answer.value, int) and answer.value < 500:
            self._proved_at, self.verifying = self.now, False
            return None
        # Silent: peer_timeout_s decides, not a probe that needs the peer. Stepped since: only slow.
        if self.silent or self._proved_at > self._probed_at:
            return None
        doing = self.progress or "idle"
        return self._of_engine(f"hang: {doing}, and a one-token completion failed: {_why(answer)}")

    def _suspect(self) -> None:
        if failure := self._look() or self._probe_failure():
            self._fail(failure)
        elif self.silent or self._proved_at > self._probed_at:
            self._enter("serving")


def _why(answer: Answer) -> str:
    late = answer.error.startswith("TimeoutError")
    return "it did not come back in time" if late else answer.error or f"HTTP {answer.value}"
