"""`status`: one look at every node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.errors import each
from orchestrator.run.endpoint import healthy
from orchestrator.run.look import gather_facts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.errors import SparkDeployError
    from orchestrator.model.facts import NodeFacts
    from orchestrator.model.inventory import Inventory
    from orchestrator.model.recipe import Recipe
    from orchestrator.remote.host import Host


@dataclass(frozen=True)
class Look:
    """*facts* of the nodes that answer, *unreachable* says why for the others, and on a second line what to do."""

    facts: Mapping[str, NodeFacts]
    unreachable: Mapping[str, str]
    api_answers: bool


def look(
    inventory: Inventory, recipe: Recipe, hosts: Mapping[str, Host], error: SparkDeployError | None
) -> Look:
    facts = gather_facts(inventory, recipe, hosts)
    head = hosts.get(inventory.head.name)
    return Look(facts, _reasons(inventory, error), api_answers=head is not None and healthy(inventory, head))


def _reasons(inventory: Inventory, error: SparkDeployError | None) -> dict[str, str]:
    """Give node -> why it cannot be reached, from the errors of connecting."""
    at = {single.node: _in_words(single) for single in each(error)} if error else {}
    return {node.name: at[node.name] for node in inventory.nodes if node.name in at}


def _in_words(error: SparkDeployError) -> str:
    said = f"{error.message} ({error.found})" if error.found else error.message
    return f"{said}\n{error.hint}" if error.hint else said
