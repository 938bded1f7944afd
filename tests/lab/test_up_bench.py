"""`up --bench`: brought up, then measured."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from .admin import AdminHome
from .lab import Lab
from .promises import CONTAINER


@pytest.fixture
def slow_at_more_than_two(inventory) -> None:
    """The engine runs two sequences at once: more of them wait, and a level that waits is INVALID."""
    engine = {"env": {"LAB_TPS": "4000"}, "vllm": {"max-num-seqs": 2}}
    inventory(recipe={**engine, "secrets": ["VLLM_API_KEY"]})


def results(home: Path) -> list[Path]:
    return sorted((home / ".local/state/spark-deploy/runs").glob("*/bench/result.json"))


def test_a_bad_measurement_leaves_what_was_brought_up(
    lab: Lab, slow_at_more_than_two: None, admin_home: AdminHome
) -> None:
    """
    The answer of `up` comes first, the exit code is that of `bench`, and nothing is rolled back.

    The API wants a key: it is the one that the nodes were given.
    """
    done: subprocess.CompletedProcess[str] = admin_home.spark_deploy(
        "up", "--bench", env={"VLLM_API_KEY": "a-key-of-the-lab"}, timeout_s=300
    )

    assert (done.returncode, done.stdout.startswith("serving: stub at ")) == (9, True), (
        done.stdout + done.stderr
    )
    assert lab.inspect("a", CONTAINER)["State"]["Running"]
    (found,) = results(admin_home.home)
    levels = json.loads(found.read_text())["levels"]
    assert [level["level"]["concurrency"] for level in levels] == [1, 2, 4, 8, 16]
