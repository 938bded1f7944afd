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
    Give the state in *text*, or None where there is none yet.

    Raises:
        ValueError: *text* is not a state file of a schema this version reads.
    """
    if not text:
        return None
    raw: Any = json.loads(text)
    if not isinstance(raw, dict) or not isinstance(raw.get("schema"), int) or raw["schema"] > SCHEMA:
        raise ValueError(
            f"state.json has schema {raw.get('schema') if isinstance(raw, dict) else raw!r}, wanted at most {SCHEMA}"
        )
    return NodeState(
        **{f.name: _typed(f.name, f.default, raw[f.name]) for f in fields(NodeState) if f.name in raw}
    )


def _typed(key: str, default: Any, value: Any) -> Any:
    """Give *value* if it is of the type of *default*: a state file comes from a node, where anybody may edit it."""
    if isinstance(default, tuple):
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
    elif type(value) is type(default) or (type(default) in (int, float) and type(value) in (int, float)):
        return value
    raise ValueError(f"{key} in state.json is {value!r}, wanted {type(default).__name__}")
