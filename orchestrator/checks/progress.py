"""Whether a starting pair has come to where it shall be: the supervisors' states judged. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from orchestrator.model.state import ENDED, SERVING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.model.inventory import Inventory
    from orchestrator.model.state import NodeState

NOBODY_HEARD = frozenset({"booting", "waiting-address", "waiting-peers"})
# Supervisors that hear each other judge first, and know more; these are for a head that hangs. Joining: their own
# limit for `ray start` is 60 s. Ready: their clock begins a little after ours, and ends with cleaning up.
LATER_THAN_THEY_S = {"joined": 90, "ready": 15}
HEAD_JOINED = frozenset({"starting-engine", "probing", SERVING, "suspect", "link-lost"})


@dataclass(frozen=True)
class ContainerLife:
    """How Docker sees the container: its status, and how often it was restarted."""

    status: str = "running"
    restarts: int = 0


@dataclass(frozen=True)
class Verdict:
    """*node* and *cause* say who failed and why; both "" otherwise."""

    outcome: Literal["waiting", "reached", "failed"]
    node: str = ""
    cause: str = ""


WAITING = Verdict("waiting")
REACHED = Verdict("reached")


def judge(
    inventory: Inventory,
    until: Literal["joined", "ready"],
    states: Mapping[str, NodeState | None],
    lives: Mapping[str, ContainerLife],
    *,
    elapsed_s: float,
    limit_s: float,
) -> Verdict:
    """
    Judge one look at all nodes: a failure before success, success before patience.

    *states* holds None for a node whose supervisor has written nothing for this release yet.
    """
    failed = _ended(inventory, states) or _dead(inventory, lives)
    if failed:
        return failed
    if _there(inventory, until, states):
        return REACHED
    patience_s = limit_s + (LATER_THAN_THEY_S[until] if _all_heard(inventory, states) else 0)
    if elapsed_s > patience_s:
        return _late(inventory, until, states, patience_s)
    return WAITING


def _all_heard(inventory: Inventory, states: Mapping[str, NodeState | None]) -> bool:
    """Whether the supervisors hear each other: from then on they judge, with limits of their own."""
    head = states.get(inventory.head.name)
    return all(states.values()) and head is not None and head.phase not in NOBODY_HEARD


def _ended(inventory: Inventory, states: Mapping[str, NodeState | None]) -> Verdict | None:
    for node in inventory.nodes:
        state = states.get(node.name)
        if state and state.phase in ENDED:
            return Verdict(
                "failed", state.cause_node or node.name, state.cause or f"{node.name} is {state.phase}"
            )
    return None


def _dead(inventory: Inventory, lives: Mapping[str, ContainerLife]) -> Verdict | None:
    for node in inventory.nodes:
        life = lives.get(node.name, ContainerLife())
        if life.status != "running" or life.restarts:
            what = f"was restarted {life.restarts} times" if life.restarts else f"is {life.status}"
            return Verdict("failed", node.name, f"the container {what}: its supervisor did not stay alive")
    return None


def _there(inventory: Inventory, until: str, states: Mapping[str, NodeState | None]) -> bool:
    phases = {node.name: state.phase if (state := states.get(node.name)) else "" for node in inventory.nodes}
    if until == "joined":
        return phases[inventory.head.name] in HEAD_JOINED
    return set(phases.values()) == {SERVING}


def _late(
    inventory: Inventory, until: str, states: Mapping[str, NodeState | None], limit_s: float
) -> Verdict:
    if until == "ready":
        return Verdict("failed", inventory.head.name, f"not ready within {limit_s:.0f} s: {_phases(states)}")
    head = states.get(inventory.head.name)
    if head is None:
        return Verdict("failed", inventory.head.name, f"its supervisor said nothing within {limit_s:.0f} s")
    missing = head.missing or tuple(
        node.name
        for node in inventory.workers
        if not (state := states.get(node.name)) or state.phase != "joined"
    )
    culprit = next(iter(missing), inventory.head.name)
    cause = f"{', '.join(missing) or culprit} did not join the Ray cluster within {limit_s:.0f} s: {_phases(states)}"
    return Verdict("failed", culprit, cause)


def _phases(states: Mapping[str, NodeState | None]) -> str:
    return ", ".join(f"{name} {describe(state)}" for name, state in states.items())


def describe(state: NodeState | None) -> str:
    """Give phase and progress in a few words."""
    if state is None:
        return "no word yet"
    return f"{state.phase} ({state.progress})" if state.progress else state.phase
