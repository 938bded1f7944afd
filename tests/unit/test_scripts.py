"""Every script that a node runs, as it stands in the review."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from orchestrator import assets
from orchestrator.model.plan import Script, Step
from orchestrator.planning.facts import facts_script
from orchestrator.planning.render import render_release
from orchestrator.planning.situation import Situation, Standing
from orchestrator.planning.steps import plan_down, plan_up
from orchestrator.run.identity import model_script
from orchestrator.run.telemetry import telemetry_script
from orchestrator.shell import NodePath
from tests.conftest import GOLDEN
from tests.unit.examples import INVENTORY, RECIPE

if TYPE_CHECKING:
    from collections.abc import Callable

FULL_ID = render_release(INVENTORY, RECIPE).id12
OLD = Situation(
    Standing.OTHER, "old", "0123456789ab", True, {"spark-1": "0123456789ab", "spark-2": "0123456789ab"}
)
# The id of the new release hashes supervise.py: it would change the golden files with every edit of that.
ID = "<release>"


def scripts() -> dict[str, str]:
    """Name -> text of every script of a replacing `up`, its way back, `down`, the facts and `bench`, on the head."""
    up = plan_up(INVENTORY, RECIPE, render_release(INVENTORY, RECIPE), OLD, break_lock=True)
    down = plan_down(INVENTORY)
    named = {
        **of("up", (*up.lock, *up.steps, *up.unlock)),
        **of("undo", up.undo),
        **of("undo-first", plan_up(INVENTORY, RECIPE, render_release(INVENTORY, RECIPE)).undo),
        **of("down", (*down.lock, *down.steps, *down.unlock)),
        "facts": facts_script(INVENTORY, RECIPE, INVENTORY.head).text,
        "facts-local-model": facts_script(
            INVENTORY, replace(RECIPE, model="/models/it's"), INVENTORY.head
        ).text,
        "bench-telemetry": telemetry_script(INVENTORY, INVENTORY.head).text,
        "bench-model": model_script(INVENTORY, RECIPE).text,
    }
    return {name: text.replace(FULL_ID, ID) for name, text in named.items()}


def of(what: str, steps: tuple[Step, ...]) -> dict[str, str]:
    works = {step.name: step.actions[0].work for step in reversed(steps)}
    return {f"{what}-{name}": work.text for name, work in works.items() if isinstance(work, Script)}


ALL = scripts()


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_script_is_what_was_reviewed(name: str, golden: Callable[[str, str], None]) -> None:
    """A change shows as a diff of shell in the review."""
    golden(f"scripts/{name}.sh", ALL[name])


@pytest.mark.parametrize("name", sorted(ALL))
def test_a_script_is_clean(name: str) -> None:
    """Shellcheck knows the traps of bash; `bash -n` the syntax."""
    text = f"#!/usr/bin/env bash\n{ALL[name].replace(ID, 'id')}"

    parsed = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
    checked = subprocess.run(["shellcheck", "-"], input=text, capture_output=True, text=True, check=False)
    assert (parsed.stderr, checked.stdout) == ("", "")


def test_every_script_of_templates_is_among_them() -> None:
    """A template that no plan uses is dead."""
    used = {name.partition("-")[2] for name in ALL} | {"facts"}
    shipped = {path.name.removesuffix(".sh.j2") for path in (assets.templates() / "scripts").iterdir()}

    assert shipped <= used


def test_every_golden_script_is_one_that_runs() -> None:
    """What is reviewed there and runs nowhere misleads the reviewer."""
    reviewed = {path.stem for path in (GOLDEN / "scripts").iterdir()}

    assert reviewed == set(ALL)


def test_each_script_says_first_what_will_be_true() -> None:
    assert {text[:2] for text in ALL.values()} == {"# "}


def test_no_script_ends_a_plan_silently() -> None:
    """Every change runs under `set -euo pipefail`; only what reads goes on when something is missing."""
    lax = [name for name, text in ALL.items() if "set -euo pipefail" not in text]

    assert sorted(lax) == ["bench-model", "bench-telemetry", "facts", "facts-local-model"]


def test_a_folder_with_metacharacters_in_its_name_is_inert() -> None:
    """Values pass through `sh`; nothing of a path becomes a command."""
    hostile = NodePath("~/a b;$(touch pwned)`x`'\"&|")
    head = replace(INVENTORY.head, paths=replace(INVENTORY.head.paths, state=hostile))
    inventory = replace(INVENTORY, nodes=(head, *INVENTORY.workers))
    up, down = plan_up(inventory, RECIPE, render_release(inventory, RECIPE), OLD), plan_down(inventory)

    for name, text in of("", (*up.lock, *up.steps, *up.undo, *up.unlock, *down.steps)).items():
        checked = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, name
        assert "$(touch pwned)" not in text.replace("'a b;$(touch pwned)`x`'", "")
