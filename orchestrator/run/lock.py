"""Who changes a deployment now: the lock's holder as text, and whether he is still there."""

from __future__ import annotations

import getpass
import json
import os
import platform
from typing import TYPE_CHECKING

from orchestrator.errors import LockedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.model.facts import LockFacts, NodeFacts


def holder(run_id: str, now: float) -> str:
    """One line of JSON for the lock's `holder` file; the key `run` is what unlock.sh looks for."""
    return json.dumps(
        {"run": run_id, "user": _user(), "host": platform.node(), "pid": os.getpid(), "since": round(now)}
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container without a passwd entry
        return str(os.getuid())


def describe_holder(lock: LockFacts, now: float) -> str:
    """Give e.g. `ann on laptop (pid 4711), since 12 min`."""
    if not lock.run:
        return "by a run that left no name"
    age_s = max(0, now - lock.since) if lock.since else 0
    age = (
        f"{age_s:.0f} s"
        if age_s < 90
        else f"{age_s / 60:.0f} min"
        if age_s < 5400
        else f"{age_s / 3600:.1f} h"
    )
    return f"by {lock.user} on {lock.host} (pid {lock.pid}), since {age}"


def holder_is_gone(lock: LockFacts) -> bool:
    """Whether the holder was a process of this very machine that lives no more: a killed or crashed run."""
    if lock.host != platform.node() or not lock.pid:
        return False
    try:
        os.kill(lock.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def refuse_if_locked(facts: Mapping[str, NodeFacts], now: float) -> tuple[str, ...]:
    """
    Give the nodes whose lock was left behind by a dead run of this machine.

    Raises:
        LockedError: somebody who may be alive holds a lock.
    """
    held = {name: fact.lock for name, fact in facts.items() if fact.lock.held}
    for name, lock in held.items():
        if not holder_is_gone(lock):
            raise locked(name, lock, now)
    return tuple(held)


def locked(node: str, lock: LockFacts, now: float) -> LockedError:
    """Give the error that names who holds the lock of *node*."""
    hint = "wait for it, or take the lock over with --break-lock"
    return LockedError(f"{node} is locked: {describe_holder(lock, now)}", hint=hint)
