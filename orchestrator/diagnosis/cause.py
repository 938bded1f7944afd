"""From the logs of all nodes to the line that names the cause. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.diagnosis.known import HINTS, KNOWN

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orchestrator.diagnosis.known import Known

# Ray colours its output even with NO_COLOR set (measured, 2.60).
ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
ENGINE_FAILED = "EngineCore failed to start"
# Lines after it in which the traceback ends; the longest of tests/fixtures/logs takes 74.
TRACEBACK_LIMIT = 400
EXCEPTION = re.compile(r"(?:^|\s)((?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit)): \S")
# What an engine says when another process of it was killed (measured, vLLM 0.32): never the cause.
SECONDARY = re.compile(
    r"RuntimeError: cancelled|Engine core initialization failed|EngineDeadError|ActorHandleNotFoundError|CancelledError"
)


@dataclass(frozen=True)
class Finding:
    """The line *quote* of *node* shows *cause*; *hint* is "" where only the line itself can be given."""

    node: str
    quote: str
    cause: str = ""
    hint: str = ""


def find_cause(logs: Mapping[str, str]) -> Finding | None:
    """
    Give the most specific known cause (the order of KNOWN) that a log has, else the end of the first engine traceback.

    The last lines of a failed start are consequences (`Engine core initialization failed`), so each
    log is searched from the front.
    """
    cleaned = {
        node: [ANSI.sub("", line).rstrip() for line in text.splitlines()] for node, text in logs.items()
    }
    return _known(KNOWN, cleaned) or _traceback(cleaned)


def hint_for(cause: str) -> str:
    """Give what to do about a cause that a supervisor or a script has named; "" where we know nothing."""
    finding = _known((*HINTS, *KNOWN), {"": [cause]})
    return finding.hint if finding else ""


def _known(causes: Iterable[Known], logs: Mapping[str, list[str]]) -> Finding | None:
    for known in causes:
        for node, lines in logs.items():
            for line in lines:
                match = known.pattern.search(line)
                if match:
                    values = {name: value or "" for name, value in match.groupdict().items()}
                    return Finding(
                        node, line.strip(), known.cause.format(**values), known.hint.format(**values)
                    )
    return None


def _traceback(logs: Mapping[str, list[str]]) -> Finding | None:
    for node, lines in logs.items():
        for number, line in enumerate(lines):
            if ENGINE_FAILED in line:
                quote = _last_of_traceback(lines[number : number + TRACEBACK_LIMIT])
                if quote:
                    return Finding(node, quote)
    return None


def _last_of_traceback(lines: Iterable[str]) -> str:
    for line in lines:
        match = EXCEPTION.search(line)
        if match and not SECONDARY.search(line):
            return line[match.start(1) :].strip()
    return ""
