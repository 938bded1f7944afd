"""The SSH link that goes away while `up` is at it, and comes back; for good: test_up_link_lost.py."""

from __future__ import annotations

import re

from .promises import assert_serves
from .shell import wait_for


def silence_ms(lab, key):
    """How long the admin's kernel has had no word on the SSH connection to the node; an error where there is none."""
    told = lab.adm(["ss", "-Htin", "state", "established", "dst", f"{lab.node(key).address}:22"]).stdout
    return int(re.findall(r" lastack:(\d+)", told)[0])


def test_a_link_that_is_silent_for_ten_seconds_costs_nothing_but_time(lab, inventory, admin_home):
    """
    A switch that restarts, a laptop that changes its access point: in the middle of `docker run` here.
    """
    inventory()

    with admin_home.background_spark_deploy("up") as up:
        up.wait_for_text("  step       start: ")
        lab.management("b", up=False)
        wait_for("ten seconds of silence", lambda: silence_ms(lab, "b") >= 10_000, timeout_s=30, every_s=0.2)
        lab.management("b", up=True)
        code = up.wait()

    assert code == 0
    assert_serves(lab)


def test_a_connection_that_is_reset_is_opened_anew(lab, inventory, admin_home):
    """
    The node's sshd was restarted; the step is done once more, which every step can bear.
    """
    inventory(recipe={"env": {"LAB_VLLM_START": "3"}})

    with admin_home.background_spark_deploy("up") as up:
        up.wait_for_text("  step       ready: ")
        lab.run("b", "pkill", "-f", "^sshd: op")
        code = up.wait()

    assert code == 0
    assert re.search(r"note       spark-b is back after \d+ s", up.stderr)
    assert_serves(lab)
