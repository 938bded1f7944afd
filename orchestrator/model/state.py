"""state.json: what a node's supervisor says of itself (written by templates/supervisor/state.py)."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

SCHEMA = 1


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
    names = {f.name for f in fields(NodeState)}
    known: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in raw.items() if key in names
    }
    return NodeState(**known)
