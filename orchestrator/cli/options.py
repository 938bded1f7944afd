"""Options that several commands share, and what they name, loaded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from orchestrator.model.inventory import Inventory
    from orchestrator.model.recipe import Recipe

inventory_option = click.option(
    "-i",
    "--inventory",
    metavar="PATH",
    help="The inventory. Default: $SPARK_DEPLOY_INVENTORY, ./spark-deploy.yaml, ./inventories/default.yaml.",
)
recipe_option = click.option(
    "--recipe",
    metavar="NAME|PATH",
    help="Serve this, not the inventory's recipe: a name in recipes/ (beside it, shipped) or a file.",
)
served_recipe_option = click.option(
    "--recipe",
    metavar="NAME|PATH",
    help="The recipe that `up` was given, where it was not the inventory's: a name in recipes/ or a file.",
)
output_option = click.option(
    "--output",
    type=click.Choice(["live", "plain", "json"]),
    default="live",
    show_default=True,
    help="How progress is shown: live on a terminal (else plain), plain lines, or one JSON object per line.",
)
text_option = click.option(
    "--output",
    type=click.Choice(["plain", "json"]),
    default="plain",
    show_default=True,
    help="Text, or one JSON object a line.",
)


def warn(inventory: Inventory, recipe: Recipe) -> None:
    """Say on standard error what is allowed, but worth a warning."""
    from orchestrator.planning.advice import warnings

    for warning in warnings(inventory, recipe):
        click.echo(f"Warning: {warning}", err=True)


def load_pair(inventory_path: str | None, recipe: str | None) -> tuple[Inventory, Recipe]:
    """
    Give the inventory and the recipe that the command line names.

    Raises:
        UsageError: no inventory or no recipe is named.
        FileError, ManyError: one of them is wrong, or both do not fit together.
    """
    from orchestrator.errors import UsageError
    from orchestrator.load.find import find_recipe
    from orchestrator.load.pair import check_pair
    from orchestrator.load.recipe import load_recipe

    inventory = load_inventory_option(inventory_path)
    named = recipe or inventory.recipe
    if not named:
        raise UsageError(
            "no recipe", found=f"no `recipe:` in {inventory.source}", wanted="it, or --recipe NAME|PATH"
        )
    path = find_recipe(named, Path(inventory.source), Path() if recipe else None)
    loaded = load_recipe(path)
    check_pair(inventory, loaded)
    return inventory, loaded


def load_inventory_option(inventory_path: str | None) -> Inventory:
    """
    Give the inventory alone, for commands that serve nothing.

    Raises:
        UsageError: none is named.
        FileError, ManyError: it is wrong.
    """
    from orchestrator.load.find import find_inventory
    from orchestrator.load.inventory import load_inventory

    return load_inventory(find_inventory(inventory_path, os.environ, Path()))
