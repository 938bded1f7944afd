"""`spark-deploy plan`: what `up` would change."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import inventory_option, load_pair, recipe_option

if TYPE_CHECKING:
    from orchestrator.model.event import Event


@click.command()
@inventory_option
@recipe_option
@click.option("--steps", is_flag=True, help="Also show every step with its script and files.")
def plan(inventory: str, recipe: str, steps: bool) -> int:
    """
    Show what `up` would change against what runs now; changes nothing.

    \b
    Example:
      spark-deploy plan -i inventories/home.yaml
    """  # noqa: D301
    from orchestrator.remote.connect import connected
    from orchestrator.run.secrets import resolve_secrets
    from orchestrator.run.session import Session
    from orchestrator.run.up import prepare
    from orchestrator.ui.change import difference
    from orchestrator.ui.show import show_plan

    pair = load_pair(inventory, recipe)
    secrets = resolve_secrets(*pair, os.environ)

    def tell(event: Event) -> None:
        click.echo(f"{'Warning: ' if event.kind == 'warning' else ''}{event.text}", err=True)

    with connected(pair[0].nodes) as (hosts, error):
        session = Session(*pair, hosts, tell, secrets=secrets)
        prepared = prepare(session, break_lock=False, connect_error=error)
    click.echo(f"{prepared.situation.standing.value}: {prepared.situation.why}")
    click.echo(difference(prepared) or prepared.plan.title)
    if steps:
        click.echo(show_plan(prepared.plan, prepared.release, pair[0]), nl=False)
    return 0
