"""Follows the supervisors of a starting pair: live phases of all nodes, until it is there or a cause is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.checks.progress import ContainerLife, describe, judge
from orchestrator.diagnosis.cause import hint_for
from orchestrator.errors import PairLeftAloneError, StepFailedError, UnreachableError
from orchestrator.model.state import NodeState, parse_state
from orchestrator.planning import layout
from orchestrator.shell import sh

if TYPE_CHECKING:
    from orchestrator.model.event import Kind
    from orchestrator.model.plan import Watch
    from orchestrator.remote.host import Host
    from orchestrator.run.session import Session

POLL_S = 0.25  # one SFTP read per node, 3 ms on an open connection
LOOK_AT_CONTAINER_EVERY_S = 4  # one `docker inspect` per node, 0.1 s
DOCKER_LIMIT_S = 20
TRANSPORTS = {
    "NET/IB": "transport NET/IB: RDMA on the fabric",
    "NET/Socket": "transport NET/Socket: TCP, far slower than RDMA",
    "gloo": "transport gloo: TCP between CPUs",
}


def watch(work: Watch, session: Session) -> None:
    """
    Return when all nodes are where *work* wants them.

    Raises:
        StepFailedError: a supervisor gave up, a container died, another run put another release there, or the
            limit ran out; names node and cause.
        PairLeftAloneError: a node was lost and did not come back.
    """
    began, looked = session.clock(), session.clock()
    lives: dict[str, ContainerLife] = {}
    before: dict[str, ContainerLife] = {}  # a container is gone for a moment while another run replaces it
    told: dict[str, str] = {}
    releases: dict[str, str] = {}
    while not session.interrupted.is_set():
        elapsed_s = session.clock() - began
        states = {name: _state(host, session) for name, host in session.hosts.items()}
        _refuse_another(states, releases)
        _tell(states, told, session, elapsed_s=elapsed_s, limit_s=work.limit_s)
        if session.clock() - looked > LOOK_AT_CONTAINER_EVERY_S or elapsed_s > work.limit_s:
            looked = session.clock()
            before, lives = lives, {name: _life(host, session) for name, host in session.hosts.items()}
        sure = {
            name: life for name, life in lives.items() if life.status != "gone" or life == before.get(name)
        }
        verdict = judge(
            session.inventory, work.until, states, sure, elapsed_s=elapsed_s, limit_s=work.limit_s
        )
        if verdict.outcome == "reached":
            _tell_transport(work, session, states)
            return
        if verdict.outcome == "failed":
            raise StepFailedError(verdict.cause, at=verdict.node, hint=hint_for(verdict.cause) or None)
        session.interrupted.wait(POLL_S)


def _refuse_another(states: dict[str, NodeState | None], seen: dict[str, str]) -> None:
    """Raise StepFailedError where a node's release is not the one *seen* first: what serves now is not ours."""
    for name, state in states.items():
        if state and state.release and state.release != seen.setdefault(name, state.release):
            raise StepFailedError("another run has put another release there", at=name, found=state.release)


def _state(host: Host, session: Session) -> NodeState | None:
    path = layout.run_folder(session.inventory, host.node) / "state.json"
    try:
        content = host.read(path)
    except UnreachableError:
        have_back(host, session)
        content = host.read(path)
    return parse_state(content)


def _life(host: Host, session: Session) -> ContainerLife:
    name = sh(session.inventory.container)
    script = f"docker inspect --format '{{{{.State.Status}}}} {{{{.RestartCount}}}}' {name}"
    try:
        outcome = host.run(script, timeout_s=DOCKER_LIMIT_S)
    except UnreachableError:
        have_back(host, session)
        return ContainerLife()
    if outcome.exit_code:
        # Anything else is a dockerd that restarts: not this container's death.
        return ContainerLife("gone") if "No such" in outcome.stderr else ContainerLife()
    status, _, restarts = outcome.stdout.strip().partition(" ")
    return ContainerLife(status, int(restarts or 0))


def have_back(host: Host, session: Session) -> None:
    """
    Reconnect to a node of a pair that has been started.

    Raises:
        PairLeftAloneError: it did not come back.
    """
    try:
        session.reconnect(host)
    except UnreachableError as error:
        raise PairLeftAloneError(
            f"lost {host.node.name} after the start; the pair is left to its supervisors",
            at=host.node.name,
            found=error.message,
            hint="spark-deploy status shows it when the node answers; `up` again attaches and waits",
        ) from error


def _tell_transport(work: Watch, session: Session, states: dict[str, NodeState | None]) -> None:
    """Say once what the engine's own log proves; the port being open proves nothing."""
    if work.until == "ready":
        found = next((state.transport for state in states.values() if state and state.transport), "")
        kind: Kind = "note" if found == "NET/IB" else "warning"
        text = TRANSPORTS.get(found, found or "transport unknown: the engine's log does not name it")
        session.tell(kind, text, node=session.inventory.head.name, transport=found)


def _tell(
    states: dict[str, NodeState | None],
    told: dict[str, str],
    session: Session,
    *,
    elapsed_s: float,
    limit_s: float,
) -> None:
    for name, state in states.items():
        text = describe(state)
        if told.get(name) == text:
            continue
        told[name] = text
        phase = state.phase if state else ""
        session.tell("progress", text, node=name, phase=phase, elapsed_s=round(elapsed_s, 1), limit_s=limit_s)
