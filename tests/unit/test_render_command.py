"""`spark-deploy render`, as it is called."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from orchestrator import assets
from orchestrator.cli.main import cli
from orchestrator.errors import SparkDeployError
from orchestrator.planning.render import render_release
from tests.unit import broken
from tests.unit.rendering import load_case

EXAMPLE = str(assets.shipped_inventories() / "example.yaml")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPARK_DEPLOY_INVENTORY", raising=False)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["render", *arguments])


def test_every_file_is_shown_with_the_hash_of_its_bytes() -> None:
    """
    Promise 1: what is shown is what runs.
    """
    shown = call("-i", EXAMPLE).stdout
    release = render_release(*load_case("example"))

    assert [
        file.path
        for files in release.by_node.values()
        for file in files
        if hashlib.sha256(file.content).hexdigest() not in shown or file.content.decode() not in shown
    ] == []


def test_what_is_written_is_what_is_shown(tmp_path: Path) -> None:
    """
    --out writes the same bytes, node by node.
    """
    call("-i", EXAMPLE, "--out", "out")

    assert {
        f"{node}/{file.path}": file.content
        for node, files in render_release(*load_case("example")).by_node.items()
        for file in files
    } == {
        str(path.relative_to("out")): path.read_bytes() for path in Path("out").rglob("*") if path.is_file()
    }


def test_run_sh_may_be_run_by_hand() -> None:
    """
    It keeps its mode.
    """
    call("-i", EXAMPLE, "--out", "out")

    assert Path("out/spark-1/run.sh").stat().st_mode & 0o777 == 0o755


def test_warnings_go_to_stderr() -> None:
    """
    Results alone on stdout.
    """
    result = call("-i", EXAMPLE, "--out", "out")

    assert "Warning: image hellohal2064/vllm-qwen3.5-gb10 is a tag" in result.stderr
    assert "Warning" not in result.stdout


def test_another_recipe_for_once() -> None:
    """
    --recipe wins over the inventory's.
    """
    Path("spark-deploy.yaml").write_text(broken.INVENTORY)
    Path("other.yaml").write_text(broken.RECIPE.replace("org/tiny", "org/other"))

    assert "org/other\n--host=127.0.0.1" in call("--recipe", "other.yaml").stdout


def test_without_a_recipe_it_says_where_one_is_named() -> None:
    """
    An inventory may leave it to the command line.
    """
    Path("spark-deploy.yaml").write_text(broken.INVENTORY.replace("recipe: tiny\n", ""))

    with pytest.raises(SparkDeployError, match=r"no recipe\n.*no `recipe:` in spark-deploy.yaml"):
        CliRunner().invoke(cli, ["render"], catch_exceptions=False)


def test_a_folder_that_cannot_be_written_is_named() -> None:
    """
    Not a traceback.
    """
    Path("out").write_text("a file")

    result = call("-i", EXAMPLE, "--out", "out/deeper")

    assert isinstance(result.exception, SparkDeployError)
    assert result.exception.message.startswith("out/deeper")
