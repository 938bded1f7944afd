"""`spark-deploy down`: nothing stays on the nodes but caches."""

from __future__ import annotations

import click

from orchestrator.cli.options import inventory_option, load_pair, output_option, served_recipe_option


@click.command()
@inventory_option
@served_recipe_option
@click.option("--break-lock", is_flag=True, help="Take the lock over from the run that holds it.")
@output_option
def down(inventory: str, recipe: str, break_lock: bool, output: str) -> int:
    """
    Stop serving, and leave nothing on the nodes but caches.

    Works from any machine that has the inventory and its recipe. A node that cannot be reached is named, and the
    others are taken down all the same (exit code 5).

    \b
    Example:
      spark-deploy down -i inventories/home.yaml
    """  # noqa: D301
    from orchestrator.cli.journaled import journaled
    from orchestrator.run.down import prepare_down, take_down
    from orchestrator.ui.show import show_plan

    pair = load_pair(inventory, recipe)
    with journaled("down", pair, output) as run, run.session() as (session, problem):
        plan, found = prepare_down(session, break_lock=break_lock)
        run.journal.write_plan(show_plan(plan, None, session.inventory))
        return run.finish(take_down(plan, session, found=found, connect_error=problem))
