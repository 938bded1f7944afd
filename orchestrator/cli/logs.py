"""`spark-deploy logs`: what the containers say."""

from __future__ import annotations

import click

from orchestrator.cli.options import inventory_option, load_pair, served_recipe_option


@click.command()
@inventory_option
@served_recipe_option
@click.option("-f", "--follow", is_flag=True, help="Go on as new lines come, until Ctrl-C.")
@click.option("--tail", type=click.IntRange(min=0), default=None, help="Only the last lines of each node.")
@click.argument("node", required=False)
def logs(inventory: str, recipe: str, follow: bool, tail: int | None, node: str | None) -> int:
    """
    Show the log of NODE's container, or of all nodes with the node's name before each line.

    \b
    Example:
      spark-deploy logs -f spark-1
    """  # noqa: D301
    import dataclasses

    from orchestrator.errors import Exit
    from orchestrator.remote.connect import connected
    from orchestrator.run.logs import chosen, show_logs

    deployment, _ = load_pair(inventory, recipe)
    nodes = chosen(deployment, node)
    shown = dataclasses.replace(deployment, nodes=nodes)
    with connected(nodes) as (hosts, error):
        try:
            show_logs(shown, hosts, click.echo, follow=follow, tail=tail)
        except KeyboardInterrupt:  # how one ends `logs -f`
            return Exit.INTERRUPTED
    if error:
        raise error
    return 0
