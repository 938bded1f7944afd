"""What happened, one line of the journal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal[
    "started",  # data: command, inventory, recipe, release, version
    "step-started",  # step, text = its title
    "action-started",  # step, node, text = its title
    "progress",  # node, text = what the node is doing now; data: elapsed_s, limit_s, phase
    "action-done",  # step, node, data: elapsed_s
    "action-failed",  # step, node, text = the error
    "step-done",  # step, data: elapsed_s
    "undo-started",  # text = why
    "note",  # text, worth a line
    "warning",
    "error",  # text = the whole message; data: exit_code
    "finished",  # text = the answer; data: exit_code, elapsed_s
]


@dataclass(frozen=True)
class Event:
    """*at* is seconds since the epoch. Never holds a secret."""

    at: float
    kind: Kind
    text: str = ""
    step: str = ""
    node: str = ""
    data: Mapping[str, Any] = field(default_factory=dict)


Sink = Callable[[Event], None]

SCHEMA = "spark-deploy/event/v1"


def to_mapping(event: Event) -> dict[str, Any]:
    """One object of `--output json` and one line of the journal's events.jsonl."""
    return {
        "schema": SCHEMA,
        "at": round(event.at, 6),  # as datetime does: the replay shows the same second as the screen did
        "kind": event.kind,
        "step": event.step,
        "node": event.node,
        "text": event.text,
        "data": dict(event.data),
    }


def from_mapping(raw: Mapping[str, Any]) -> Event:
    """
    Give the event back; what a newer version added is ignored.

    Raises:
        ValueError: *raw* is no event.
    """
    schema = str(raw.get("schema", ""))
    if not schema.startswith("spark-deploy/event/") or not isinstance(raw.get("at"), (int, float)):
        raise ValueError(f"not an event: {str(raw)[:200]}")
    data = raw.get("data")
    return Event(
        at=raw["at"],
        kind=raw.get("kind", "note"),
        text=str(raw.get("text", "")),
        step=str(raw.get("step", "")),
        node=str(raw.get("node", "")),
        data=data if isinstance(data, dict) else {},
    )
