"""`spark-deploy status`: what every node does."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import inventory_option, load_pair, served_recipe_option, text_option
from orchestrator.errors import Exit

if TYPE_CHECKING:
    from orchestrator.model.inventory import Inventory
    from orchestrator.run.status import Look
    from orchestrator.ui.status import StatusRow


@click.command()
@inventory_option
@served_recipe_option
@text_option
def status(inventory: str, recipe: str, output: str) -> int:
    """
    Show what every node does: phase, attempts, transport, and what to do where it does not serve.

    Exit code 0 when all nodes serve and the API answers, 1 when not, 5 when a node cannot be reached.

    \b
    Example:
      spark-deploy status --output json
    """  # noqa: D301
    from orchestrator.remote.connect import connected
    from orchestrator.run.status import look
    from orchestrator.ui.status import serving, show_status, status_json
    from orchestrator.ui.streams import coloured

    pair = load_pair(inventory, recipe)
    with connected(pair[0].nodes) as (hosts, error):
        seen = look(*pair, hosts, error)
    rows = status_rows(pair[0], seen)
    if output == "json":
        click.echo(status_json(rows, deployment=pair[0].name, api_answers=seen.api_answers), nl=False)
    else:
        click.echo(show_status(rows, colour=coloured(sys.stdout, os.environ)), nl=False)
        if serving(rows) and not seen.api_answers:
            click.echo("The API does not answer /health with 200.")
    if error:
        return Exit.UNREACHABLE
    return Exit.DONE if serving(rows) and seen.api_answers else Exit.FAILED


def status_rows(inventory: Inventory, seen: Look) -> list[StatusRow]:
    from orchestrator.ui.status import StatusRow

    return [
        StatusRow(
            node.name,
            node.role,
            fact.state,
            fact.container(inventory.container),
            clock=fact.clock,
            docker_problem=fact.docker.problem,
        )
        if (fact := seen.facts.get(node.name))
        else StatusRow(node.name, node.role, error=seen.unreachable.get(node.name, "unreachable"))
        for node in inventory.nodes
    ]
