"""Two who want to change the same pair, and one who died while he did."""

from __future__ import annotations

import json
import re
import signal
import time

import pytest

from .promises import OP_STATE, assert_as_before, assert_serves, errors, locks, releases

SLOW = {"env": {"LAB_VLLM_START": "6"}}


def hold_lock(lab, key, **holder):
    """Ann's lock on the node, as her laptop's `up` leaves it when its power goes."""
    known = {"run": "20261130T200000-0a1b2c", "user": "ann", "host": "annas-laptop", "pid": 4711}
    text = json.dumps({**known, "since": round(time.time()) - 1500, **holder})
    folder = f"{OP_STATE}/locks/lab.{lab.node(key).name}"
    script = f"install -d -m 700 -o op -g op {OP_STATE} {OP_STATE}/locks {folder} && cat >{folder}/holder"
    lab.run(key, "sh", "-c", script, stdin=text.encode())


LOCKED = (
    "Error: spark-b is locked: by ann on annas-laptop (pid 4711), since 25 min\n"
    "  hint   wait for it, or take the lock over with --break-lock\n"
)


@pytest.mark.parametrize("command", ["up", "down"])
def test_a_held_lock_names_its_holder_and_age(lab, inventory, spark_deploy, command):
    """
    Whoever it is can be asked; nothing is changed meanwhile.
    """
    inventory()
    hold_lock(lab, "b")

    done = spark_deploy(command)

    assert (done.returncode, errors(done)) == (6, LOCKED)
    assert locks(lab) == ["b: lab.spark-b"]
    assert_as_before(lab, "a")


def test_break_lock_takes_a_lock_over(lab, inventory, spark_deploy):
    """
    Ann's laptop is at the bottom of a lake.
    """
    inventory()
    hold_lock(lab, "b")

    done = spark_deploy("up", "--break-lock")

    assert done.returncode == 0
    assert_serves(lab)


def test_a_run_that_still_lives_keeps_its_lock_and_its_pair(lab, inventory, admin_home):
    """
    Two terminals of one operator: the second is told which process to look at.
    """
    inventory(recipe=SLOW)

    with admin_home.background_spark_deploy("up") as first:
        first.wait_for_text("(weights ")
        second = admin_home.spark_deploy("up")
        code = first.wait()

    assert second.returncode == 6
    assert re.match(
        rf"Error: spark-a is locked: by root on \S+ \(pid {first.process.pid}\), since \d+ s\n",
        errors(second),
    )
    assert code == 0
    assert_serves(lab)


@pytest.mark.parametrize("step", ["files", "start"])
def test_the_next_run_takes_over_from_a_killed_one(lab, inventory, admin_home, step):
    """
    The dead process is known to be dead, as it was one of this machine: nobody has to say --break-lock.
    """
    inventory()
    admin_home.up_until(f"  step       {step}: ", sent=signal.SIGKILL)

    done = admin_home.spark_deploy("up")

    assert done.returncode == 0
    assert re.search(r"note       the lock on .* was left by a run that is no more: taken over", done.stderr)
    assert_serves(lab)


def test_the_next_run_attaches_to_a_release_that_still_loads(lab, inventory, admin_home):
    """
    A lost laptop costs no reload: the supervisors went on, and the next `up` only waits with them.
    """
    inventory(recipe={"env": {"LAB_VLLM_START": "4"}})
    admin_home.up_until("(weights ", sent=signal.SIGKILL)
    before = {key: lab.docker(key, "ps", "--quiet", "--no-trunc") for key in "ab"}

    done = admin_home.spark_deploy("up")

    assert (done.returncode, done.stdout.partition(":")[0]) == (0, "serving")
    assert "  step       start: " not in done.stderr
    assert {key: lab.docker(key, "ps", "--quiet", "--no-trunc") for key in "ab"} == before
    assert_serves(lab)


def test_another_machine_attaches_with_break_lock(lab, inventory, admin_home, spark_deploy):
    """
    It cannot know whether the first one lives, so it is told to; the loading goes on undisturbed.
    """
    inventory(recipe={"env": {"LAB_VLLM_START": "4"}})
    admin_home.up_until("(weights ", sent=signal.SIGKILL)
    for key in "ab":
        hold_lock(lab, key)

    refused = spark_deploy("up")
    done = spark_deploy("up", "--break-lock")

    assert refused.returncode == 6
    assert done.returncode == 0
    assert "  step       start: " not in done.stderr
    assert len(set(releases(lab).values())) == 1
    assert_serves(lab)


def test_a_run_whose_lock_was_broken_leaves_the_other_run_s_pair_alone(lab, inventory, admin_home):
    """
    Neither its success nor its way back is its own any more: it must not take down what now serves.
    """
    inventory(recipe=SLOW)
    other = inventory(file="other.yaml", recipe_name="other", recipe={"vllm": {"max-model-len": 2048}})
    with admin_home.background_spark_deploy("up") as first:
        first.wait_for_text("(weights ")
        second = admin_home.spark_deploy("up", "-i", other, "--yes", "--break-lock")
        code = first.wait()

    assert (second.returncode, code) == (0, 6)
    assert errors(first).startswith("Error: another run has put another release there\n")
    assert "another run has taken over the lock on spark-a: nothing more was changed there" in errors(first)
    assert_serves(lab)
