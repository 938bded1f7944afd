"""What every node is doing, in words and as JSON. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.diagnosis.cause import hint_for
from orchestrator.planning.situation import STALE_S
from orchestrator.ui.jsonl import to_line
from orchestrator.ui.printable import columns, duration, one_line, printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator.model.facts import Container
    from orchestrator.model.state import NodeState

SCHEMA = "spark-deploy/status/v1"

PHASES = {
    "booting": "its supervisor starts",
    "waiting-address": "waits until its fabric address exists (cable, netplan)",
    "waiting-peers": "waits to hear the other supervisors on the fabric",
    "waiting-head": "waits to hear the head's supervisor on the fabric",
    "starting-ray": "starts Ray",
    "joining": "waits until every node has joined the Ray cluster",
    "joined": "has joined the Ray cluster; the engine is not ready yet",
    "starting-engine": "starts the engine",
    "probing": "the engine is up; a completion is being tried",
    "serving": "serves",
    "suspect": "the engine stands still; a completion is being tried before it counts as hung",
    "link-lost": "does not hear a peer on the fabric; if that lasts, the session is started anew",
    "failed": "an attempt has ended; cleans up",
    "backing-off": "an attempt has ended; waits before the next one",
    "gave-up": "gave up, and stays down until the cause is gone and `spark-deploy up` is called",
    "down": "was told to stay down; `spark-deploy up` starts it again",
}

# With `--restart always` a container is in one of these only because somebody, or Docker, put it there.
CONTAINERS = {
    "exited": (
        "its container was stopped by hand (exit code {code}): "
        "`docker start {name}` on {node}, or `spark-deploy up`"
    ),
    "paused": "its container was paused by hand: `docker unpause {name}` on {node}",
    "created": "its container was made but never ran: `spark-deploy up` makes a new one",
    "restarting": "Docker restarts its container (so far {restarts} times): `docker logs {name}` on {node}",
    "dead": "Docker could not remove its container: `docker rm --force {name}` on {node}",
    "removing": "Docker is removing its container",
}

_HEADING = ("NODE", "ROLE", "PHASE", "FOR", "RELEASE", "ATTEMPTS", "TRANSPORT")
_ENDED = ("gave-up", "failed", "backing-off")
_BAD = {"gave-up", "failed", "unreachable", "silent", "no container", *CONTAINERS}
_GREEN, _YELLOW, _RED, _BOLD, _PLAIN = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[1m", "\x1b[0m"


@dataclass(frozen=True)
class StatusRow:
    """One node as `status` found it; *clock* is the node's own, 0 when it was not read."""

    node: str
    role: str
    state: NodeState | None = None
    container: Container | None = None
    error: str | None = None  # why the node cannot be reached; further lines: what to do
    clock: float = 0
    docker_problem: str = ""  # Docker's own complaint: whether a container runs is then unknown


def serving(rows: Sequence[StatusRow]) -> bool:
    """Whether every node says that it serves, all of them the same release."""
    releases = {row.state.release for row in rows if row.state}
    return all(_word(row) == "serving" for row in rows) and len(releases) == 1


def show_status(rows: Sequence[StatusRow], *, colour: bool = False) -> str:
    """Give a table, and under it what needs a word for each node."""
    heading, *lines = columns([_HEADING, *map(_cells, rows)])
    if colour:
        heading = f"{_BOLD}{heading}{_PLAIN}"
        lines = [_painted(row, line) for row, line in zip(rows, lines, strict=True)]
    words = [line for row in rows for line in _words(row)]
    return "\n".join([heading, *lines, *([""] if words else []), *words]) + "\n"


def status_json(rows: Sequence[StatusRow], **more: Any) -> str:
    """Give one line of JSON (schema spark-deploy/status/v1) with *more* beside `serving` and `nodes`."""
    nodes = [
        {
            "node": row.node,
            "role": row.role,
            "status": _word(row),
            "explanation": explain(row),
            "error": row.error,
            "state": asdict(row.state) if row.state else None,
            "container": asdict(row.container) if row.container else None,
        }
        for row in rows
    ]
    return to_line({"schema": SCHEMA, **more, "serving": serving(rows), "nodes": nodes})


def explain(row: StatusRow) -> str:
    """Say in one sentence what the node does, and what would help."""
    word = _word(row)
    if row.error is not None:
        return f"cannot be reached: {one_line(row.error)}"
    if row.docker_problem:
        says = f"; its supervisor says: {row.state.phase}" if row.state else ""
        return f"Docker cannot be asked: {one_line(row.docker_problem)}{says}"
    if row.container is None:
        return "no container of this deployment; `spark-deploy up` starts one"
    if word in CONTAINERS:
        c = row.container
        return CONTAINERS[word].format(name=c.name, node=row.node, code=c.exit_code, restarts=c.restarts)
    if row.state is None:
        return "its supervisor has not said anything yet"
    if word == "silent":
        return (
            f"its supervisor has said nothing for {duration(row.clock - row.state.at)}; "
            f"the last was {row.state.phase}: `docker logs {row.container.name}` on {row.node}"
        )
    return _explain_phase(row.state)


def _explain_phase(state: NodeState) -> str:
    parts = [PHASES.get(state.phase, state.phase), state.progress]
    if state.missing:
        parts.append(f"missing: {', '.join(state.missing)}")
    if state.cause:
        of = f" ({state.cause_node})" if state.cause_node and state.cause_node != state.node else ""
        parts.append(f"{'cause' if state.phase in _ENDED else 'the attempt before ended'}{of}: {state.cause}")
    return "; ".join(one_line(part) for part in parts if part)


def _word(row: StatusRow) -> str:
    """Give the phase, or what outweighs it."""
    if row.error is not None:
        return "unreachable"
    if row.docker_problem:
        return "unknown"
    if row.container is None:
        return "no container"
    if row.container.status != "running":
        return row.container.status
    if row.state is None:
        return "booting"
    if row.clock and row.state.at < row.clock - STALE_S:
        return "silent"
    return row.state.phase


def _cells(row: StatusRow) -> tuple[str, ...]:
    word = _word(row)
    state = row.state if row.state and word == row.state.phase else None
    container = row.container.release if row.container else ""
    if state is None:
        return (row.node, row.role, word, "", container, "", "")
    since = duration(max(row.clock, state.at) - state.since) if state.since else ""
    attempts = f"{state.attempts}/{state.attempt_limit}" if state.attempt_limit else ""
    return (row.node, row.role, word, since, container, attempts, state.transport)


def _words(row: StatusRow) -> Iterator[str]:
    if _word(row) == "serving" and row.state and not row.state.cause:
        return
    if row.error is not None:
        why, *remedies = printable(row.error).splitlines() or [""]
        yield f"{row.node}: cannot be reached: {why}"
        yield from (f"  hint {line.strip()}" for line in remedies)
        return
    yield f"{row.node}: {explain(row)}"
    if row.state and _word(row) in _ENDED and (hint := hint_for(row.state.cause)):
        yield f"  hint {hint}"
    if row.state and row.state.last_lines and _word(row) in _ENDED:
        yield "  the engine's last lines:"
        yield from (f"    {line}" for line in map(one_line, row.state.last_lines) if line)


def _painted(row: StatusRow, line: str) -> str:
    word = _word(row)
    colour = _GREEN if word == "serving" else _RED if word in _BAD else _YELLOW
    return line.replace(f"  {word}", f"  {colour}{word}{_PLAIN}", 1)
