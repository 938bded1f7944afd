"""The command line as a whole: what holds for every command."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import COMMANDS, cli

HEAVY = ("docker", "fabric", "jinja2", "paramiko", "pydantic", "requests", "rich", "yaml")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_in_its_help(name: str) -> None:
    """The first thing that a reader of `-h` copies."""
    shown = CliRunner().invoke(cli, [name, "-h"])

    assert f"Example:\n    spark-deploy {name}" in shown.stdout, repr(shown)


def test_help_waits_for_no_heavy_import() -> None:
    """All of them take 0.35 s: too long for a shell's completion."""
    program = f"import sys, orchestrator.cli.main as m; print(sorted(set({HEAVY}) & set(sys.modules)))"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert loaded.stdout == "[]\n"


def test_a_misspelled_command_names_the_nearest() -> None:
    shown = CliRunner().invoke(cli, ["statsu"]).stderr

    assert "Did you mean `status`?" in shown


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_standard_stream_is_no_crash(closed: str) -> None:
    """A cron job or a daemon may start us so; the number must not go to the next socket either."""
    done = subprocess.run(
        ["sh", "-c", f'"$0" -m orchestrator status -i none.yaml {closed}', sys.executable],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, "Traceback" in done.stderr) == (3, False)
