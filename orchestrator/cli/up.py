"""`spark-deploy up`: from an inventory to a model that serves."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import inventory_option, load_pair, output_option, recipe_option, warn
from orchestrator.errors import Exit

if TYPE_CHECKING:
    from orchestrator.model.inventory import Inventory
    from orchestrator.model.recipe import Recipe
    from orchestrator.run.up import Prepared


@click.command()
@inventory_option
@recipe_option
@click.option(
    "--dry-run", "only_show", is_flag=True, help="Show all that would be done, byte by byte; no connection."
)
@click.option("--yes", is_flag=True, help="Replace what runs without asking.")
@click.option("--break-lock", is_flag=True, help="Take the lock over from the run that holds it.")
@click.option(
    "--refresh", is_flag=True, help="Put the files of a newer spark-deploy on, though nothing else changed."
)
@click.option(
    "--bench",
    "measured",
    is_flag=True,
    help="Then measure it, as `spark-deploy bench` does; the exit code is then that one's.",
)
@output_option
def up(inventory: str, recipe: str, only_show: bool, measured: bool, output: str, **given: bool) -> int:
    """
    Serve the recipe's model on the inventory's nodes.

    Ends in one of two states: serving and proved by a streamed completion, or the state before, with one
    named cause. Unchanged and serving: nothing to do. Changed: shows the difference and asks.

    \b
    Example:
      spark-deploy up -i inventories/home.yaml
    """  # noqa: D301
    pair = load_pair(inventory, recipe)
    if only_show:
        return _show(*pair)
    code = _up(pair, output, **given)
    if measured and code == Exit.DONE:
        from orchestrator.cli.bench import defaults, measure_deployment

        return measure_deployment(pair, defaults(), output)
    return code


def _up(pair: tuple[Inventory, Recipe], output: str, *, yes: bool, break_lock: bool, refresh: bool) -> Exit:
    from orchestrator.cli.journaled import journaled
    from orchestrator.run.secrets import resolve_secrets
    from orchestrator.run.up import bring_up, prepare
    from orchestrator.ui.show import show_plan

    secrets = resolve_secrets(*pair, os.environ)
    with journaled("up", pair, output, secrets) as run, run.session() as (session, problem):
        prepared = prepare(session, break_lock=break_lock, refresh=refresh, connect_error=problem)
        run.hide_secrets(session)
        run.journal.describe(release=prepared.release.id)
        run.journal.write_release(prepared.release)
        run.journal.write_plan(show_plan(prepared.plan, prepared.release, session.inventory))
        if not _may(prepared, yes=yes, machine=output == "json"):
            return run.finish("nothing was changed", Exit.FAILED)
        return run.finish(bring_up(prepared, session, run.journal))


def _show(inventory: Inventory, recipe: Recipe) -> int:
    from orchestrator.planning.render import render_release
    from orchestrator.planning.steps import plan_up
    from orchestrator.ui.show import show_plan

    release = render_release(inventory, recipe)
    warn(inventory, recipe)
    click.echo(show_plan(plan_up(inventory, recipe, release), release, inventory), nl=False)
    return 0


def _may(prepared: Prepared, *, yes: bool, machine: bool) -> bool:
    """Ask before a release that is there is stopped."""
    from orchestrator.cli.question import confirm
    from orchestrator.ui.change import difference

    question = difference(prepared)
    return not question or confirm(question, "Stop it and serve the new one?", yes=yes, machine=machine)
