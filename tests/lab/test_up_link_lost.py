"""
The SSH link that goes away for good while `up` is at it.

`up` waits a minute for it, so both cases run side by side, each in a lab of its own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from .admin import AdminHome
from .conftest import running_lab
from .inventory import write_inventory
from .promises import assert_as_before, assert_serves, containers, errors, locks, refuse_ssh

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .admin import Background
    from .lab import Lab

LIMIT_S = 150  # of waiting for an `up` that waits 60 s itself
SLOW = {"env": {"LAB_VLLM_START": "3"}}


@dataclass(frozen=True)
class Lost:
    """An `up` that lost spark-b, and the locks it left; the link is there again."""

    lab: Lab
    home: AdminHome
    up: Background
    locks: list[str]


@dataclass(frozen=True)
class BothLost:
    before_the_start: Lost
    after_the_start: Lost


@pytest.fixture(scope="module")
def lost(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BothLost]:
    with running_lab() as other:
        homes = [AdminHome(each, tmp_path_factory.mktemp("lost") / "home").create() for each in (lab, other)]
        for home in homes:
            write_inventory(home, recipe=SLOW)
        with (
            homes[0].background_spark_deploy("up") as first,
            homes[1].background_spark_deploy("up") as second,
        ):
            first.wait_for_text("  step       files: ")
            refuse_ssh(lab, "b")
            second.wait_for_text("  step       ready: ")
            refuse_ssh(other, "b")
            for up in (first, second):
                up.wait(LIMIT_S)
            for each in (lab, other):
                each.run("b", "iptables", "-w", "-F")
            yield BothLost(
                Lost(lab, homes[0], first, locks(lab)), Lost(other, homes[1], second, locks(other))
            )
    lab.clean()


@pytest.fixture(autouse=True)
def clean_nodes() -> None:
    """What the one `up` of each lab left is looked at by several tests."""


def test_before_the_start_it_leads_back_where_it_can(lost):
    """
    Exit code 5: the reachable node is as before; where something may be left is named, with what removes it.
    """
    up = lost.before_the_start.up
    first, second = errors(up).split("Error: ")[1:]

    assert up.returncode == 5
    assert re.search(r"WARNING    spark-b is lost: trying for 60 s", up.stderr)
    assert first.startswith("spark-b cannot be reached\n  at     spark-b (10.99.1.11:22)\n")
    assert second.startswith("the way back was not finished: look at spark-b\n")
    assert second.endswith("  hint   spark-deploy down -i spark-deploy.yaml   # removes what is left\n")
    assert "WARNING    spark-b keeps its lock: " in up.stderr
    assert lost.before_the_start.locks == ["b: lab.spark-b"]
    assert_as_before(lost.before_the_start.lab, "a")


def test_after_the_start_the_pair_is_left_to_its_supervisors(lost):
    """
    Promise 4's one exception: a load of many minutes is not thrown away because a laptop lost its network.
    """
    up = lost.after_the_start.up

    assert up.returncode == 5
    assert re.fullmatch(
        r"Error: lost spark-b after the start; the pair is left to its supervisors\n"
        r"  at     spark-b\n"
        r"  found  .*\n"
        r"  hint   spark-deploy status shows it when the node answers; `up` again attaches and waits\n",
        errors(up),
    )
    status = lost.after_the_start.home.spark_deploy("status")
    assert status.returncode == 0


def test_afterwards_up_finds_the_pair_serving_and_the_lock_left_behind(lost):
    """
    Nothing is restarted, and the lock that could not be let go is gone.
    """
    before = containers(lost.after_the_start.lab)

    again = lost.after_the_start.home.spark_deploy("up")

    assert lost.after_the_start.locks == ["b: lab.spark-b"]
    assert (again.returncode, again.stdout.partition(":")[0]) == (0, "already serving"), again.stderr
    assert containers(lost.after_the_start.lab) == before
    assert_serves(lost.after_the_start.lab)


def test_afterwards_down_removes_what_was_left(lost):
    """
    The command that the error named.
    """
    done = lost.before_the_start.home.spark_deploy("down")

    assert done.returncode == 0
    assert locks(lost.before_the_start.lab) == []
    assert_as_before(lost.before_the_start.lab)
