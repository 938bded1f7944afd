"""state.json: what a node's supervisor says of itself (written by templates/supervisor/state.py)."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

SCHEMA = 1
SERVING = "serving"
ENDED = frozenset({"gave-up", "down"})  # it stays there until `up`
# From these the supervisors come to serve by themselves, or end.
COMING = frozenset(
    {
        "booting",
        "waiting-address",
        "waiting-peers",
        "waiting-head",
        "starting-ray",
        "joining",
        "joined",
        "starting-engine",
        "probing",
        "suspect",
        "link-lost",
        "failed",
        "backing-off",
    }
)


@dataclass(frozen=True)
class NodeState:
    """All times are seconds since the epoch on the node's own clock; unknown newer keys are ignored."""

    deployment: str = ""
    node: str = ""
    role: str = ""
    release: str = ""  # id12
    phase: str = ""
    since: float = 0  # when the phase began
    at: float = 0  # when this was written
    progress: str = ""  # e.g. "weights 3/7", "compiling", "capturing graphs 40%"
    attempts: int = 0
    attempt_limit: int = 0
    ready_once: bool = False
    cause: str = ""  # why the last attempt ended
    cause_node: str = ""
    last_lines: tuple[str, ...] = ()  # of the engine, when an attempt ended
    transport: str = ""  # "NET/IB", "NET/Socket", "gloo" or "" while unknown
    members: tuple[str, ...] = ()  # fabric addresses in the Ray cluster
    missing: tuple[str, ...] = ()  # node names that have not joined
    boot_id: str = ""
    session: str = ""
    run: str = ""  # the `up` that last asked for this release


def parse_state(text: str | bytes | None) -> NodeState | None:
    """
    Give the state in *text*, or None where this version can read none.

    None was written yet, it was torn by a power cut or edited on the node, or its schema is newer. The supervisor
    writes it anew within 5 s.
    """
    try:
        raw: Any = json.loads(text or "")
    except ValueError:
        return None
    if not isinstance(raw, dict) or not isinstance(raw.get("schema"), int) or raw["schema"] > SCHEMA:
        return None
    known = {key.name: key.default for key in fields(NodeState) if key.name in raw}
    if not all(_is_like(default, raw[name]) for name, default in known.items()):
        return None
    told: dict[str, Any] = {
        name: tuple(raw[name]) if isinstance(default, tuple) else raw[name] for name, default in known.items()
    }
    return NodeState(**told)


def _is_like(default: Any, value: Any) -> bool:
    """Whether *value* is of the type of *default*; a whole number may stand for a fraction, and the other way round."""
    if isinstance(default, tuple):
        return isinstance(value, list) and all(isinstance(item, str) for item in value)
    numbers = (int, float)
    return type(value) is type(default) or (type(default) in numbers and type(value) in numbers)
