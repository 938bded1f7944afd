"""Rendering for tests: the golden cases, and what `docker run` gets from a rendered run.sh."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

from orchestrator import assets
from orchestrator.load.find import find_recipe
from orchestrator.load.inventory import load_inventory
from orchestrator.load.pair import check_pair
from orchestrator.load.recipe import load_recipe
from orchestrator.planning.render import render_release
from tests.conftest import GOLDEN

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.model.inventory import Inventory, Node
    from orchestrator.model.recipe import Recipe
    from orchestrator.model.release import Release

CASES = ("example", "crossed", "three-nodes")


def load(inventory_path: Path, recipe_path: Path | None = None) -> tuple[Inventory, Recipe]:
    inventory = load_inventory(inventory_path)
    recipe = load_recipe(recipe_path or find_recipe(inventory.recipe, inventory_path))
    check_pair(inventory, recipe)
    return inventory, recipe


def load_case(case: str) -> tuple[Inventory, Recipe]:
    if case == "example":
        return load(assets.shipped_inventories() / "example.yaml")
    return load(GOLDEN / case / "inventory.yaml", GOLDEN / case / "recipe.yaml")


def load_data(folder: Path, inventory: dict[str, Any], recipe: dict[str, Any]) -> tuple[Inventory, Recipe]:
    """Load what the two mappings say; JSON is YAML."""
    paths = folder / "inventory.yaml", folder / "recipe.yaml"
    for path, data in zip(paths, (inventory, recipe), strict=True):
        path.write_text(json.dumps(data), encoding="utf-8")
    return load(*paths)


def content(release: Release, node: str, path: str) -> str:
    return next(file.content.decode() for file in release.by_node[node] if file.path == path)


def environment_of(release: Release, node: str) -> dict[str, str]:
    """Read node.env as Docker does (docker/cli, pkg/kvfile): comments, then everything after the first `=`."""
    lines = content(release, node, "node.env").split("\n")
    pairs = (
        line.lstrip().partition("=") for line in lines if line.strip() and not line.lstrip().startswith("#")
    )
    return {name: value for name, _, value in pairs}


def docker_argv(folder: Path, inventory: Inventory, recipe: Recipe, node: Node) -> list[list[str]]:
    """
    Run *node*'s run.sh as a node would, with a `docker` that writes down how it is called.

    Give the calls in order; the release lies in folder/<node>/releases/<id>, HOME is folder/home.
    """
    release = render_release(inventory, recipe)
    place = folder / node.name / "releases" / release.id12
    place.mkdir(parents=True, exist_ok=True)
    for file in release.by_node[node.name]:
        (place / file.path).parent.mkdir(exist_ok=True)
        (place / file.path).write_bytes(file.content)
    run = place.parents[1] / "run"
    run.mkdir(exist_ok=True)
    (run / "secrets.env").touch()
    return _calls(folder, place / "run.sh")


def _calls(folder: Path, script: Path) -> list[list[str]]:
    fakes, log = folder / "bin", folder / "calls"
    fakes.mkdir(exist_ok=True)
    (fakes / "docker").write_text(
        '#!/bin/bash\nprintf "%s\\0" "$@" $\'\\n\' >> "$CALLS"\n[ "$1" != container ]\n'
    )
    (fakes / "docker").chmod(0o755)
    log.write_text("")
    environ = {"PATH": f"{fakes}:{os.environ['PATH']}", "HOME": str(folder / "home"), "CALLS": str(log)}
    subprocess.run(["bash", script], cwd=folder, env=environ, check=True, capture_output=True, timeout=60)
    calls = log.read_bytes().decode().split("\0\n\0")
    return [call.split("\0") for call in calls if call]
