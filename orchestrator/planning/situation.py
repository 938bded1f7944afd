"""What runs now, compared with what shall run: the one decision of `up`."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

from orchestrator.model.inventory import Api
from orchestrator.model.plan import Endpoint
from orchestrator.model.state import COMING, SERVING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.model.facts import NodeFacts
    from orchestrator.model.inventory import Inventory
    from orchestrator.model.release import Release

# The supervisor writes state.json at least every 5 s; three times that is a supervisor that stands still.
STALE_S = 15
_ON_ITS_WAY = "on its way"


class Standing(Enum):
    ABSENT = "nothing runs"
    SERVING = "this release serves"
    COMING = "this release is on its way"
    BROKEN = "this release is there, but does not serve"
    SECRETS = "this release is there, with other secrets"
    OTHER = "another release is there"


@dataclass(frozen=True)
class Situation:
    """
    *why* says in one line what was seen.

    *previous* is the id12 that every node runs and could start again, "" when they run none or differ;
    *previous_served* says whether it served. *running* gives each node's id12, "none" where no container was found.
    *endpoint* and *start_limit_s* are the previous release's own, where its files could be read.
    """

    standing: Standing
    why: str
    previous: str = ""
    previous_served: bool = False
    running: Mapping[str, str] = field(default_factory=dict)
    endpoint: Endpoint | None = None
    start_limit_s: float | None = None

    def found(self, node: str) -> str:
        return self.running.get(node, "none")


def situation(
    inventory: Inventory, release: Release, facts: Mapping[str, NodeFacts], *, secrets_changed: bool = False
) -> Situation:
    """Judge what the facts of all nodes show."""
    name = inventory.container
    containers = {node.name: facts[node.name].container(name) for node in inventory.nodes}
    running = {node: container.release if container else "none" for node, container in containers.items()}
    found = set(running.values())
    if renamed := _renamed(inventory, facts):
        return Situation(Standing.OTHER, renamed, running=running)
    if found == {"none"}:
        return Situation(Standing.ABSENT, "no container of this deployment", running=running)
    if found == {"none", release.id12}:  # an `up` that was killed while it started them
        gone = ", ".join(node for node, id12 in running.items() if id12 == "none")
        return Situation(Standing.BROKEN, f"{gone}: the container is gone", running=running)
    previous = found.pop() if len(found) == 1 else ""
    why = _why_not_serving(inventory, previous, facts)
    if previous != release.id12:
        return _another(previous, facts, running, served=bool(previous) and not why)
    if edited := _edited(inventory, release, facts):
        return Situation(Standing.BROKEN, f"{edited} was changed on the node", running=running)
    if secrets_changed:
        return Situation(Standing.SECRETS, "a secret changed", previous, not why, running)
    if why not in ("", _ON_ITS_WAY):
        return Situation(Standing.BROKEN, why, running=running)
    standing, said = (Standing.COMING, _phases(inventory, facts)) if why else (Standing.SERVING, "serving")
    return Situation(standing, said, previous, not why, running)


def _another(
    previous: str, facts: Mapping[str, NodeFacts], running: Mapping[str, str], *, served: bool
) -> Situation:
    """Give the situation before a replacing `up`; a release whose files are gone cannot be started again."""
    why = f"release {', '.join(sorted(set(running.values()) - {'none'}))} is on the nodes"
    damaged = [node for node, fact in facts.items() if "run.sh" not in fact.releases.get(previous, {})]
    if previous and damaged:
        why = f"{why}, its files are not whole on {', '.join(damaged)}"
        return Situation(Standing.OTHER, why, running=running)
    return Situation(Standing.OTHER, why, previous, served, running)


def _renamed(inventory: Inventory, facts: Mapping[str, NodeFacts]) -> str:
    found = [(node, one.name) for node in facts for one in facts[node].of(inventory.name)]
    return ", ".join(
        f"{node}: its container has another name, {name}"
        for node, name in found
        if name != inventory.container
    )


def knowing_previous(now: Situation, supervise_json: bytes | None) -> Situation:
    """Give *now* with what the running release's own supervise.json says: a new recipe may say otherwise."""
    try:
        raw = json.loads(supervise_json or b"")
        api = Api(raw["api"]["host"], raw["api"]["port"])
        endpoint = Endpoint(raw["served_name"], api.local, api.port)
        return replace(now, endpoint=endpoint, start_limit_s=raw["limits"]["start_limit_s"])
    except (ValueError, KeyError, TypeError):  # edited by hand, or made by a version that we do not know
        return now


def _phases(inventory: Inventory, facts: Mapping[str, NodeFacts]) -> str:
    states = {node.name: facts[node.name].state for node in inventory.nodes}
    return ", ".join(f"{name}: {state.phase if state else 'no state yet'}" for name, state in states.items())


def _why_not_serving(inventory: Inventory, id12: str, facts: Mapping[str, NodeFacts]) -> str:
    """Empty when all nodes serve, _ON_ITS_WAY when their supervisors are at it, else the reason."""
    reasons = [_why_node_not_serving(inventory, id12, facts[node.name]) for node in inventory.nodes]
    broken = [reason for reason in reasons if reason not in ("", _ON_ITS_WAY)]
    return next(iter(broken), _ON_ITS_WAY if _ON_ITS_WAY in reasons else "")


def _why_node_not_serving(inventory: Inventory, id12: str, fact: NodeFacts) -> str:
    container, state, node = fact.container(inventory.container), fact.state, fact.node
    if container is None or container.status != "running":
        return f"{node}: the container is {container.status if container else 'gone'}"
    if fact.desired.startswith("down"):
        return f"{node}: it was told to stay down"
    if state is None or state.release != id12:
        return _ON_ITS_WAY
    if state.at < fact.clock - STALE_S:
        return f"{node}: its supervisor has been silent for {fact.clock - state.at:.0f} s"
    if state.phase == SERVING:
        return ""
    if state.phase in COMING:
        return _ON_ITS_WAY
    return f"{node}: {state.phase}{': ' + state.cause if state.cause else ''}"


def _edited(inventory: Inventory, release: Release, facts: Mapping[str, NodeFacts]) -> str:
    for node in inventory.nodes:
        found = facts[node.name].releases.get(release.id12, {})
        changed = [file.path for file in release.by_node[node.name] if found.get(file.path) != file.sha256]
        if changed:
            return f"{node.name}: {', '.join(changed)}"
    return ""
