"""`spark-deploy render`: what the nodes get, without a connection."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import inventory_option, load_pair, recipe_option, warn

if TYPE_CHECKING:
    from orchestrator.model.release import Release


@click.command()
@inventory_option
@recipe_option
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write DIR/<node>/<file> instead of showing the files.",
)
def render(inventory: str | None, recipe: str | None, out: Path | None) -> None:
    """
    Show the files that the nodes get, without a connection.

    They are the very bytes that `up` uploads: every file with its SHA-256, which is the same on the node and
    in the run's journal. Equal inventory and recipe give equal bytes, on any machine.

    \b
    Example:
      spark-deploy render -i inventories/home.yaml --out /tmp/rendered
    """  # noqa: D301
    from orchestrator.planning.render import render_release
    from orchestrator.ui.listing import listing, table

    deployment, served = load_pair(inventory, recipe)
    release = render_release(deployment, served)
    warn(deployment, served)
    if out is not None:
        write(release, out)
    click.echo(listing(deployment, release) if out is None else table(deployment, release), nl=False)


def write(release: Release, out: Path) -> None:
    """
    Write every node's files below *out*; other files in there stay.

    Raises:
        UsageError: *out* cannot be written.
    """
    from orchestrator.errors import UsageError

    try:
        for node, files in release.by_node.items():
            for file in files:
                path = out / node / file.path
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.content)
                path.chmod(file.mode)
    except OSError as error:
        raise UsageError(
            f"{error.filename or out} cannot be written", found=error.strerror, hint="name another --out"
        ) from None
