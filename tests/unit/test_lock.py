"""Who holds a lock, and when it may be taken over."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import replace

import pytest

from orchestrator.errors import LockedError
from orchestrator.model.facts import LockFacts
from orchestrator.planning.facts import parse_holder
from orchestrator.run.lock import describe_holder, holder, refuse_if_locked
from tests.unit.examples import NOW, pair_facts

HELD = LockFacts(held=True, run="run-1", user="ann", host="elsewhere", pid=42, since=NOW - 720)


def test_the_holder_names_run_user_host_and_process() -> None:
    written = json.loads(holder("run-1", NOW))

    assert (written["run"], written["host"], written["pid"]) == ("run-1", platform.node(), os.getpid())


def test_a_held_lock_names_its_holder_and_its_age() -> None:
    with pytest.raises(LockedError, match=r"locked: by ann on elsewhere \(pid 42\), since 12 min"):
        refuse_if_locked(pair_facts(lock=HELD), NOW)


def test_a_lock_of_this_machine_whose_process_lives_is_held() -> None:
    mine = replace(HELD, host=platform.node(), pid=os.getpid())

    with pytest.raises(LockedError):
        refuse_if_locked(pair_facts(lock=mine), NOW)


def test_a_lock_left_by_a_killed_run_of_this_machine_is_taken_over() -> None:
    """A laptop that crashed must not lock its operator out."""
    dead = subprocess.Popen(["true"])
    dead.wait()

    assert refuse_if_locked(pair_facts(lock=replace(HELD, host=platform.node(), pid=dead.pid)), NOW) == (
        "spark-1",
        "spark-2",
    )


def test_a_lock_without_a_name_is_still_a_lock() -> None:
    """A run that died between mkdir and write; nobody can say whose it was."""
    assert describe_holder(parse_holder(["torn {"]), NOW) == "by a run that left no name"
