"""Ctrl-C, whenever it comes: exit code 130, and the nodes as before."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from .promises import NOTHING_LEFT, assert_as_before, errors, locks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .lab import Lab

SLOW = {"env": {"LAB_VLLM_START": "20", "LAB_RAY_START": "1"}}
SLOW_TOKENS = {"env": {"LAB_TPS": "4"}}  # the proof takes 4 s
STEPS = ["lock", "files", "prune", "prepare", "secrets", "start", "join", "ready"]


@pytest.fixture
def docker_rm_hangs_on_b(lab: Lab) -> Iterator[None]:
    """As on a node where the kernel takes its time to give a dead engine's memory back."""
    program = b'#!/bin/sh\n[ "$1" != rm ] || sleep 600\nexec /usr/bin/docker "$@"\n'
    lab.run("b", "sh", "-c", "cat >/usr/local/bin/docker; chmod 755 /usr/local/bin/docker", stdin=program)
    yield
    lab.run("b", "rm", "-f", "/usr/local/bin/docker")


@pytest.mark.parametrize("step", STEPS)
def test_ctrl_c_in_a_step_leads_back(lab, inventory, admin_home, step):
    """
    Promise 4: nothing half-alive holds memory on a node, and no lock waits for somebody to break it.
    """
    inventory(recipe=SLOW)

    up = admin_home.up_until(f"  step       {step}: ")

    assert (up.returncode, errors(up).splitlines()[0]) == (130, "Error: interrupted")
    assert errors(up).count("Error: ") == 1
    assert_as_before(lab)


def test_ctrl_c_in_the_proof_leads_back(lab, inventory, admin_home):
    """
    The engine is ready, but not proved: that is not yet serving.
    """
    inventory(recipe=SLOW_TOKENS)

    up = admin_home.up_until("  step       verify: ")

    assert (up.returncode, errors(up)) == (
        130,
        f"Error: interrupted\n  at     prove that it serves\n{NOTHING_LEFT}",
    )
    assert_as_before(lab)


def test_ctrl_c_before_the_nodes_were_looked_at_changes_nothing(lab, inventory, admin_home):
    """
    A node that does not answer is waited for; nobody has to sit that out.
    """
    inventory()
    lab.management("b", up=False)

    up = admin_home.up_until("  started  ")

    assert (up.returncode, errors(up)) == (130, "Error: interrupted before anything was changed\n")
    assert_as_before(lab)


def test_sigterm_is_taken_like_ctrl_c(lab, inventory, admin_home):
    """
    A CI job that is cancelled, a laptop that shuts down.
    """
    inventory(recipe=SLOW)

    up = admin_home.up_until("(weights ", sent=signal.SIGTERM)

    assert (up.returncode, errors(up)) == (
        130,
        f"Error: interrupted\n  at     load the model\n{NOTHING_LEFT}",
    )
    assert_as_before(lab)


@pytest.mark.usefixtures("docker_rm_hangs_on_b")
def test_a_second_ctrl_c_stops_the_way_back_and_says_what_is_left(lab, inventory, admin_home):
    """
    Who presses it twice wants his terminal back; the lock is let go, and one command removes the rest.
    """
    inventory(recipe=SLOW)

    with admin_home.background_spark_deploy("up") as up:
        up.wait_for_text("(weights ")
        up.interrupt()
        up.wait_for_text("begin      spark-b: remove container and files")
        up.interrupt()
        code = up.wait()

    assert (code, errors(up)) == (
        130,
        "Error: interrupted\n"
        "  at     load the model\n"
        "Error: the way back was not finished: look at spark-a, spark-b\n"
        "  found  interrupted\n"
        "  hint   spark-deploy down -i spark-deploy.yaml   # removes what is left\n",
    )
    assert locks(lab) == []
    assert lab.run("b", "/usr/bin/docker", "ps", "--quiet") != ""
    lab.run("b", "rm", "/usr/local/bin/docker")
    assert admin_home.spark_deploy("down").returncode == 0
    assert_as_before(lab)


def test_the_journal_of_an_interrupted_run_says_so(lab, inventory, admin_home):
    """
    `runs` tells next week who did what.
    """
    inventory(recipe=SLOW)
    admin_home.up_until("  step       start: ")

    runs = admin_home.spark_deploy("runs").stdout
    shown = admin_home.spark_deploy("runs", "show", "last").stdout

    assert "  interrupted  " in runs
    assert "undo       interrupted: back to the state before" in shown
