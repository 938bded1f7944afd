"""Every mistake in a file: what it says, word by word, with file and line, and that it ends in exit code 3."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.errors import Exit, SparkDeployError
from orchestrator.load.inventory import load_inventory
from orchestrator.load.pair import check_pair
from orchestrator.load.recipe import load_recipe
from tests.unit import broken

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def _beside_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths in messages are as short as the operator's own."""
    monkeypatch.chdir(tmp_path)


def error_of(load: Callable[[], object]) -> SparkDeployError:
    with pytest.raises(SparkDeployError) as caught:
        load()
    return caught.value


def slug(claim: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", claim.lower())


def answer(claim: str, good: str, bad: str, error: SparkDeployError) -> str:
    """Show the changed lines and the message."""
    changes = difflib.ndiff(good.splitlines(), bad.splitlines()) if bad.strip() else ["(empty)"]
    lines = [line for line in changes if line[:1] in "+-("]
    return "\n".join([f"# {claim}", *lines, "", str(error), ""])


@pytest.mark.parametrize("claim", broken.BROKEN_INVENTORIES)
def test_broken_inventory(claim: str, golden: Callable[[str, str], None]) -> None:
    """
    The operator is told what was found, what is wanted and the line.
    """
    bad = broken.broken(broken.INVENTORY, broken.BROKEN_INVENTORIES[claim])
    Path("home.yaml").write_text(bad, encoding="utf-8")

    error = error_of(lambda: load_inventory(Path("home.yaml")))

    assert error.exit_code == Exit.FILE
    golden(f"broken/inventory/{slug(claim)}.txt", answer(claim, broken.INVENTORY, bad, error))


@pytest.mark.parametrize("claim", broken.BROKEN_RECIPES)
def test_broken_recipe(claim: str, golden: Callable[[str, str], None]) -> None:
    """
    The operator is told what was found, what is wanted and the line.
    """
    bad = broken.broken(broken.RECIPE, broken.BROKEN_RECIPES[claim])
    Path("tiny.yaml").write_text(bad, encoding="utf-8")

    error = error_of(lambda: load_recipe(Path("tiny.yaml")))

    assert error.exit_code == Exit.FILE
    golden(f"broken/recipe/{slug(claim)}.txt", answer(claim, broken.RECIPE, bad, error))


@pytest.mark.parametrize("claim", broken.BROKEN_PAIRS)
def test_recipe_that_does_not_fit_the_nodes(claim: str, golden: Callable[[str, str], None]) -> None:
    """
    Two good files that cannot work together: the place is in the recipe.
    """
    bad = broken.broken(broken.RECIPE, broken.BROKEN_PAIRS[claim])
    Path("tiny.yaml").write_text(bad, encoding="utf-8")
    Path("home.yaml").write_text(broken.INVENTORY, encoding="utf-8")
    pair = load_inventory(Path("home.yaml")), load_recipe(Path("tiny.yaml"))

    error = error_of(lambda: check_pair(*pair))

    assert error.exit_code == Exit.FILE
    golden(f"broken/pair/{slug(claim)}.txt", answer(claim, broken.RECIPE, bad, error))


def test_the_unbroken_files_load() -> None:
    """
    Else the cases above would prove nothing.
    """
    Path("tiny.yaml").write_text(broken.RECIPE, encoding="utf-8")
    Path("home.yaml").write_text(broken.INVENTORY, encoding="utf-8")

    check_pair(load_inventory(Path("home.yaml")), load_recipe(Path("tiny.yaml")))


@pytest.mark.parametrize(
    "claim", [c for c in broken.BROKEN_RECIPES if "hunter2" in str(broken.BROKEN_RECIPES[c])]
)
def test_no_message_shows_a_secret(claim: str) -> None:
    """
    Who wrote a key into the wrong place must not find it in a CI log, too.
    """
    Path("tiny.yaml").write_text(broken.broken(broken.RECIPE, broken.BROKEN_RECIPES[claim]), encoding="utf-8")

    error = error_of(lambda: load_recipe(Path("tiny.yaml")))

    assert "hunter2" not in str(error)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"name: h\xf6me\n", "byte 0xf6 is not UTF-8\n  at     home.yaml:1\n  wanted a text file in UTF-8"),
        (
            "name: home\n".encode("utf-16"),
            "byte 0xff is not UTF-8\n  at     home.yaml:1\n  wanted a text file in UTF-8",
        ),
        (b"x" * 1_000_001, "home.yaml has 1000001 bytes\n  at     home.yaml\n  wanted at most 1000000"),
        (
            b"[" * 5000,
            "home.yaml is nested too deeply\n  at     home.yaml\n  wanted a few levels",
        ),
    ],
    ids=["latin-1", "utf-16", "too large", "too deep"],
)
def test_file_that_is_no_text(content: bytes, message: str) -> None:
    """
    Not even YAML: still a message, never a traceback.
    """
    Path("home.yaml").write_bytes(content)

    error = error_of(lambda: load_inventory(Path("home.yaml")))

    assert (str(error), error.exit_code) == (message, Exit.FILE)


def test_aliases_of_aliases_end_before_memory_does() -> None:
    """
    Ten lines can mean a thousand million values.
    """
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    Path("home.yaml").write_text("\n".join(levels))

    error = error_of(lambda: load_inventory(Path("home.yaml")))

    assert error.message == "more than 100000 values"


def test_missing_file() -> None:
    """
    Named by the path that was given.
    """
    error = error_of(lambda: load_inventory(Path("nowhere/home.yaml")))

    assert (error.message, error.exit_code) == ("there is no inventory nowhere/home.yaml", Exit.FILE)


def test_folder_in_place_of_a_file() -> None:
    """
    `-i inventories` is a likely slip.
    """
    Path("inventories").mkdir()

    error = error_of(lambda: load_inventory(Path("inventories")))

    assert (error.message, error.wanted) == ("inventories is a folder", "an inventory file")
