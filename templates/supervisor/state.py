"""What state.json says. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from supervisor.hearing import PeerView
    from supervisor.machine import Machine

SCHEMA = 1


def state_of(machine: Machine, release: str, boot_id: str, since: float) -> dict[str, Any]:
    """All but the time of writing and what changes with it; *since* is the phase's, seconds since 1970."""
    settings, attempts = machine.settings, machine.attempts
    return {
        "schema": SCHEMA,
        "deployment": settings.deployment,
        "node": settings.node,
        "role": settings.role,
        "release": release,
        "phase": machine.shown,
        "since": since,
        "progress": machine.progress,
        "attempts": attempts.count,
        "attempt_limit": attempts.limit(settings.limits),
        "ready_once": attempts.ready_once,
        "cause": attempts.cause,
        "cause_node": attempts.cause_node,
        "last_lines": list(attempts.last_lines),
        "transport": machine.transport,
        "members": list(machine.members),
        "missing": list(machine.missing),
        "boot_id": boot_id,
        "session": machine.session,
        "run": attempts.run,
        "foreign_releases": dict(machine.seen.foreign_release),
    }


def peers_of(peers: Mapping[str, PeerView]) -> dict[str, dict[str, Any]]:
    return {
        name: {"age_s": round(view.age_s, 1) if view.age_s < math.inf else None, "phase": view.beat.phase}
        for name, view in peers.items()
    }
