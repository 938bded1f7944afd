"""How often a release may be started, over restarts of the container. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from supervisor.settings import Limits


@dataclass(frozen=True)
class Failure:
    """Why an attempt ended. A *peer_lost* one is given back: the node, not the release, was at fault."""

    cause: str
    node: str = ""
    lines: tuple[str, ...] = ()
    peer_lost: bool = False


@dataclass(frozen=True)
class Attempts:
    """
    How often this release has been started, over restarts of the container (run/attempts.json).

    Until it has once been ready there is one attempt; afterwards as many as the limits say without an hour
    of health in between. A new `up` begins anew; so does a new boot, except for *ready_once*. *open* is true
    while a session lasts: found so at the start of a container, the one before was killed.
    """

    release: str = ""
    boot_id: str = ""
    run: str = ""
    count: int = 0
    ready_once: bool = False
    open: bool = False
    cause: str = ""
    cause_node: str = ""
    last_lines: tuple[str, ...] = ()

    def limit(self, limits: Limits) -> int:
        return limits.attempts if self.ready_once else 1

    def spent(self, limits: Limits) -> bool:
        return self.count >= self.limit(limits)

    def resumed(self, *, release: str, boot_id: str, node: str) -> Attempts:
        """What an earlier container's count is worth to this one, on *node*."""
        if self.release != release:
            return Attempts(release=release, boot_id=boot_id)
        rebooted = self.boot_id != boot_id
        kept = replace(self, boot_id=boot_id, count=0) if rebooted else self
        if not self.open:
            return kept
        cause = f"{node} was rebooted" if rebooted else f"{node}'s container was killed"
        return replace(kept, open=False, cause=cause, cause_node=node, last_lines=())

    def asked_anew(self, run: str, *, count: int, ready: bool) -> Attempts:
        fresh = Attempts(run=run, count=count, ready_once=ready)
        return replace(fresh, release=self.release, boot_id=self.boot_id, open=self.open)

    def started(self) -> Attempts:
        return replace(self, count=self.count + 1, open=True)

    def given_back(self) -> Attempts:
        return replace(self, count=max(0, self.count - 1))

    def ready(self) -> Attempts:
        """The first readiness ends the trial: what comes after counts from nought."""
        return replace(self, ready_once=True, count=self.count if self.ready_once else 0)

    def failed(self, failure: Failure) -> Attempts:
        kept = self.given_back() if failure.peer_lost and self.ready_once else self
        return replace(
            kept, open=False, cause=failure.cause, cause_node=failure.node, last_lines=failure.lines
        )


def parse_attempts(text: str) -> Attempts:
    """A file that cannot be read counts nothing: the worst is one budget more."""
    try:
        raw = json.loads(text)
        known = {item.name for item in fields(Attempts)}
        values = {key: value for key, value in raw.items() if key in known}
        return Attempts(**{**values, "last_lines": tuple(values.get("last_lines", ()))})
    except (ValueError, TypeError, AttributeError):
        return Attempts()


def backoff_s(in_vain: int) -> float:
    """Seconds before the next start, after so many in a row that did not get ready."""
    return float(min(30, 2 ** max(1, in_vain)))
