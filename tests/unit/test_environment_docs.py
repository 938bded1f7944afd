"""docs/inventory.md and the supervisor agree with what is rendered."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.assets import shipped_inventories
from orchestrator.load.owned import RAY_OWNED, VLLM_OWNED
from orchestrator.load.schema import InventorySchema, RecipeSchema
from orchestrator.model.recipe import Recipe, Supervision
from orchestrator.planning.environment import OWNED, environment, owner_reason
from orchestrator.planning.render import render_release
from supervisor.settings import Limits, parse_settings
from tests.unit.rendering import content, load_case

DOCS = Path(__file__).parents[2] / "docs" / "inventory.md"


def documented() -> dict[str, str]:
    """Give the table's variables with "owned" or "default"."""
    return dict(
        re.findall(
            r"^\| `([A-Za-z_]+)` \| [^|]+ \| (owned|default) \|",
            DOCS.read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    )


def test_the_table_names_every_variable_that_is_set() -> None:
    """
    In the order of node.env.
    """
    inventory, recipe = load_case("example")
    names = [
        variable.name
        for group in environment(inventory, recipe, inventory.head)
        for variable in group.variables
    ]

    assert list(documented()) == names


def test_the_table_says_which_a_recipe_may_set() -> None:
    """
    And the loader refuses the others.
    """
    assert documented() == {name: "owned" if owner_reason(name) else "default" for name in documented()}


@pytest.mark.parametrize(
    "name", [*OWNED, *RAY_OWNED, *VLLM_OWNED, *InventorySchema.model_fields, *RecipeSchema.model_fields]
)
def test_every_key_and_every_refusal_is_documented(name: str) -> None:
    """
    By its name, or by its family (`data-parallel-*`).
    """
    text = DOCS.read_text(encoding="utf-8")
    families = ("data-parallel-", "ssl-")
    family = next((family for family in families if name.startswith(family)), None)

    assert f"`{name}" in text or (family is not None and f"`{family}*`" in text)


def test_the_supervisor_reads_the_settings_that_are_rendered() -> None:
    """
    Two sides of one file.
    """
    inventory, recipe = load_case("crossed")
    settings = parse_settings(content(render_release(inventory, recipe), "spark-right", "supervise.json"))

    assert (settings.node, settings.role, settings.fabric_ip, settings.peers, settings.head) == (
        "spark-right",
        "worker",
        "192.168.177.10",
        {"left": "192.168.177.9"},
        "left",
    )


def test_the_supervisor_knows_every_limit_that_is_rendered() -> None:
    """
    A limit that it does not know would be ignored.
    """
    inventory, recipe = load_case("crossed")
    settings = parse_settings(content(render_release(inventory, recipe), "left", "supervise.json"))

    assert vars(settings.limits) == {**vars(recipe.supervision), "start_limit_s": recipe.start_limit_s}


def test_both_sides_have_the_same_default_limits() -> None:
    """
    The supervisor imports nothing of the package, so they stand twice; a supervise.json may name none.
    """
    assert vars(Limits()) == {**vars(Supervision()), "start_limit_s": Recipe.start_limit_s}


def test_the_documented_default_limits_are_the_real_ones() -> None:
    """
    In the table of recipe keys, and as comments in the reference recipe.
    """
    row = re.search(r"^\| `supervision\.\*` \|.*$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    recipe = shipped_inventories() / "recipes" / "qwen3.5-122b-a10b-fp8.yaml"
    commented = re.findall(r"^#   (\w+): (\d+)", recipe.read_text(encoding="utf-8"), re.MULTILINE)
    defaults = {name: str(value) for name, value in vars(Supervision()).items()}

    assert row is not None
    assert dict(re.findall(r"`(\w+)` (\d+)", row.group())) == defaults
    assert dict(commented) == defaults
