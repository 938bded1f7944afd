"""One JSON object a line, for machines. Schema: spark-deploy/event/v1."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TextIO

from orchestrator.model.event import to_mapping
from orchestrator.run.mask import each_string
from orchestrator.ui.printable import printable
from orchestrator.ui.streams import write

if TYPE_CHECKING:
    from orchestrator.model.event import Event, Sink


def jsonl(stream: TextIO) -> Sink:
    """Write every event to *stream*, ASCII only, so that no locale and no terminal can spoil it."""

    def sink(event: Event) -> None:
        write(stream, to_line(to_mapping(event)))

    return sink


def to_line(value: Any) -> str:
    """One line of JSON whose strings hold nothing a terminal acts on, even after `jq -r`."""
    return json.dumps(each_string(value, printable), default=str) + "\n"
