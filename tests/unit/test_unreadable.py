"""What may not be read, or has no room to be written to, is told as such: no traceback, no wrong advice."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from orchestrator import assets
from orchestrator.cli.main import cli
from orchestrator.errors import FileError, SparkDeployError, StepFailedError
from orchestrator.load.find import find_inventory, find_recipe
from orchestrator.remote import known_hosts, trust
from orchestrator.remote.known_hosts import HostKey, Verdict
from orchestrator.remote.ssh_config import SshEnvironment, SshSettings
from orchestrator.remote.strict import HostKeyError, check
from orchestrator.run.history import list_runs, load_run, runs_folder
from orchestrator.run.journal import Journal
from tests.unit.rights import closed

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = assets.shipped_inventories() / "example.yaml"
KEY = HostKey("ssh-ed25519", b"\0\0\0\x0bssh-ed25519" + b"k" * 32)


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty one that everybody may look into, unlike pytest's own."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def settings(file: Path) -> SshSettings:
    return SshSettings("spark-1", "10.0.0.1", 22, "op", user_known_hosts=(file,))


def test_an_ssh_folder_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    """`sudo ssh-keygen` and the like leave ~/.ssh to root; it was a traceback."""
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").touch()
    here = SshEnvironment(home=tmp_path, passwd_home=Path("/nowhere"), user="ann")

    with closed(tmp_path / ".ssh"), pytest.raises(FileError, match=r"\.ssh/config cannot be read") as refused:
        _ = here.config_file

    assert refused.value.found == "Permission denied"
    assert refused.value.hint is not None


def test_a_recipes_folder_that_may_not_be_read_is_named(folder: Path) -> None:
    """It was a traceback; `there is no recipe` would be as wrong."""
    (folder / "recipes").mkdir()

    with closed(folder / "recipes"), pytest.raises(FileError, match=r"recipes/tiny\.yaml cannot be read"):
        find_recipe("tiny", folder / "home.yaml")


def test_an_inventory_behind_a_closed_folder_is_named(folder: Path) -> None:
    with closed(folder), pytest.raises(FileError, match="cannot be read"):
        find_inventory(str(folder / "home.yaml"), {}, Path())


def test_a_folder_in_the_place_of_an_inventory_is_called_one(folder: Path) -> None:
    """`-i inventories` said that there was no such inventory."""
    (folder / "home.yaml").touch()

    with pytest.raises(FileError, match="is a folder") as refused:
        find_inventory(str(folder), {}, Path())

    assert refused.value.hint == f"name one of its files: {folder / 'home.yaml'}"


def test_a_missing_inventory_without_a_neighbour_points_at_the_example(folder: Path) -> None:
    """As a call without `-i` does."""
    with pytest.raises(FileError) as refused:
        find_inventory(str(folder / "nope.yaml"), {}, Path())

    assert refused.value.hint == f"copy {EXAMPLE} to {folder / 'nope.yaml'} and edit it"


def test_a_known_hosts_that_may_not_be_read_is_not_said_to_lack_the_key(folder: Path) -> None:
    """The line is there; `spark-deploy trust` would fail as well."""
    file = folder / "known_hosts"
    known_hosts.append(file, "10.0.0.1", KEY, hash_name=False)

    with closed(file), pytest.raises(HostKeyError) as refused:
        check(settings(file), KEY, "spark-1")

    assert refused.value.message == f"the host key of spark-1 cannot be checked: {file} cannot be read"
    assert "spark-deploy trust" not in (refused.value.hint or "")


def test_a_key_that_cannot_be_written_down_says_whose_the_file_may_be(folder: Path) -> None:
    file = folder / "known_hosts"
    file.touch()
    offer = trust.Offer(settings(file), KEY, Verdict("unknown"), target=True)

    with closed(file), pytest.raises(StepFailedError, match="cannot be written down") as refused:
        trust.record(offer)

    assert refused.value.hint == f"`ls -l {file}` shows whose it is; after a `sudo` it may be root's"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has it")  # noqa: PTH110
def test_a_full_disk_under_standard_output_is_one_error() -> None:
    """`render > FILE`: it was a traceback, and Python added its own at exit."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", "render", "-i", EXAMPLE],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == 1
    assert "Error: standard output cannot be written\n  found  No space left on device\n" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture
def environ(folder: Path) -> dict[str, str]:
    """The past holds one run."""
    found = {"XDG_STATE_HOME": str(folder)}
    Journal.open(found, "home", "up", lambda: 1_796_072_400).close()
    for above in (runs_folder(found), runs_folder(found).parent):
        above.chmod(0o755)
    return found


def test_runs_that_may_not_be_read_are_not_no_runs(environ: dict[str, str]) -> None:
    """`no runs yet` hid them."""
    with (
        closed(runs_folder(environ)),
        pytest.raises(SparkDeployError, match="runs cannot be read") as refused,
    ):
        list_runs(environ)

    assert (refused.value.exit_code, refused.value.found) == (1, "Permission denied")


def test_a_run_of_another_user_is_not_called_unfinished(environ: dict[str, str]) -> None:
    """And the list fails, so that a script sees it."""
    (run,) = list_runs(environ)

    with closed(run.folder):
        shown = CliRunner(env=environ).invoke(cli, ["runs"], standalone_mode=False)

    assert "cannot be read" in shown.stdout
    assert "unfinished" not in shown.stdout
    assert shown.return_value == 1


def test_a_run_of_another_user_cannot_be_replayed(environ: dict[str, str]) -> None:
    (run,) = list_runs(environ)

    with closed(run.folder), pytest.raises(SparkDeployError, match=f"{run.id} cannot be read"):
        load_run(environ, "last")


def test_an_empty_home_is_that_of_the_password_database() -> None:
    """From where the ssh files come, too: `HOME= spark-deploy up` wrote to /.local/state."""
    home = pwd.getpwuid(os.getuid()).pw_dir

    assert runs_folder({"HOME": ""}) == Path(home, ".local/state/spark-deploy/runs")
