"""How often is tried: the first-ready rule, the cap, what costs nothing, what begins anew."""

from __future__ import annotations

import pytest

from supervisor.attempts import Attempts, backoff_s, parse_attempts
from supervisor.settings import Desired
from tests.unit.supervision import RELEASE, WORKER, Stage, attempts


def fail(stage: Stage) -> None:
    """Ray ends; the cleaning is done."""
    stage.exits = {"ray": 1}
    stage.step()
    stage.answer("clean")


def test_before_the_first_ready_there_is_one_attempt() -> None:
    """
    A wrong flag must not cost five loads.
    """
    stage = Stage().to_starting_engine()
    fail(stage)
    stage.run(3600)

    assert (stage.shown, stage.machine.attempts.cause) == ("gave-up", "ray exited with 1")
    assert len(stage.done("StartEngine")) == 1


def test_first_ready_ends_the_trial_and_counts_from_nought() -> None:
    stage = Stage().to_serving()

    assert (stage.machine.attempts.ready_once, stage.machine.attempts.count) == (True, 0)


def test_after_the_first_ready_a_failure_is_tried_again() -> None:
    stage = Stage().to_serving()
    fail(stage)

    assert (stage.shown, stage.machine.attempts.cause) == ("backing-off", "ray exited with 1")


def test_five_starts_without_an_hour_of_health_are_the_end() -> None:
    stage = Stage().to_serving()
    for _ in range(5):
        stage.exits = {"ray": 1}
        stage.step()
        stage.restart()
    fail(stage)
    stage.run(3600)

    assert (stage.shown, stage.machine.attempts.count) == ("gave-up", 5)


def test_an_hour_of_health_forgives_what_was_before() -> None:
    stage = Stage(limits={"hang_s": 1e9}).to_serving()
    for _ in range(3):
        stage.exits = {"ray": 1}
        stage.step()
        stage.restart()
    for _ in range(1900):
        stage.look()

    assert stage.machine.attempts.count == 0
    assert stage.saved[-1].count == 0


def test_each_start_is_written_down_before_ray_is_started() -> None:
    """
    Or a supervisor that crashes would have a fresh budget after each restart of its container.
    """
    stage = Stage().to_starting_ray()

    kinds = [type(effect).__name__ for effect in stage.effects]
    assert kinds.index("SaveAttempts") < kinds.index("StartRay")
    assert stage.saved[-1].count == 1


@pytest.mark.parametrize(("in_vain", "seconds"), [(0, 2), (1, 2), (2, 4), (3, 8), (4, 16), (5, 30), (9, 30)])
def test_backing_off_gets_longer_up_to_half_a_minute(in_vain: int, seconds: float) -> None:
    assert backoff_s(in_vain) == seconds


def test_failure_after_hours_of_service_is_tried_again_at_once() -> None:
    """
    Backing off is for starts that lead nowhere.
    """
    stage = Stage(attempts=attempts(count=3, ready_once=True)).to_serving()
    fail(stage)
    stage.peer(WORKER, session="", phase="waiting-head")
    stage.run(5)

    assert stage.shown == "starting-ray"


def test_backing_off_waits_for_memory_to_come_back() -> None:
    stage = Stage().to_serving()
    fail(stage)
    stage.peer(WORKER, session="", phase="waiting-head")
    for second in range(30):
        stage.world["available_kb"] = 10_000_000 + second * 1_000_000
        stage.step(1)
    rising = stage.shown
    stage.run(4)

    assert (rising, stage.shown) == ("backing-off", "starting-ray")


def test_memory_is_not_waited_for_longer_than_a_minute() -> None:
    stage = Stage().to_serving()
    fail(stage)
    for second in range(61):
        stage.world["available_kb"] = 10_000_000 + second * 1_000_000
        stage.step(1)

    assert stage.shown != "backing-off"


def test_lost_link_costs_no_attempt() -> None:
    stage = Stage().to_serving()
    stage.exits = {"ray": 1}
    stage.step()
    stage.restart()
    stage.silent = {WORKER}
    stage.run(62)

    assert stage.machine.attempts.count == 0


def test_rebooted_peer_costs_no_attempt() -> None:
    stage = Stage(attempts=attempts(ready_once=True)).to_serving()
    stage.peer(WORKER, incarnation="i2", boot="b2")
    stage.step()

    assert stage.machine.attempts.count == 0


def test_restarted_container_of_a_peer_costs_one() -> None:
    """
    Else a worker that runs out of memory in each load would go on for ever.
    """
    stage = Stage(attempts=attempts(ready_once=True)).to_serving()
    stage.peer(WORKER, incarnation="i2")
    stage.step()

    assert stage.machine.attempts.count == 1


def test_peer_lost_in_the_first_start_ends_it() -> None:
    """
    `up` is watching, and its operator wants to know.
    """
    stage = Stage().to_starting_engine()
    stage.silent = {WORKER}
    stage.run(70)
    stage.answer("clean")

    assert (stage.shown, stage.machine.attempts.cause) == ("gave-up", "nothing heard from spark-2 for 60 s")


def test_gave_up_survives_a_restart_of_the_container() -> None:
    stage = Stage(attempts=attempts(count=5, ready_once=True, cause="why", last_lines=("x",)))
    stage.boot()
    stage.run(3600)

    assert (stage.shown, stage.machine.attempts.cause, stage.machine.attempts.last_lines) == (
        "gave-up",
        "why",
        ("x",),
    )


def test_container_that_ended_in_its_only_attempt_gives_up() -> None:
    before = attempts(count=1, open=True).resumed(release=RELEASE, boot_id="b1", node="spark-1")
    stage = Stage(attempts=before).boot()

    assert (stage.shown, stage.machine.attempts.cause) == ("gave-up", "spark-1's container was killed")


def test_power_cut_while_serving_is_the_cause_afterwards() -> None:
    before = attempts(ready_once=True, open=True, cause="an old one")

    assert before.resumed(release=RELEASE, boot_id="b2", node="spark-1").cause == "spark-1 was rebooted"


def test_session_is_open_from_its_start_to_its_end() -> None:
    """
    So a container that finds it open knows that the one before was killed.
    """
    stage = Stage().to_serving()
    begun = stage.machine.attempts.open
    stage.exits = {"ray": 1}
    stage.step()

    assert (begun, stage.machine.attempts.open) == (True, False)


def test_attempts_so_far_survive_a_restart_of_the_container() -> None:
    stage = Stage(attempts=attempts(count=3, ready_once=True)).to_starting_ray()

    assert stage.machine.attempts.count == 4


def test_stopped_container_gets_its_attempt_back() -> None:
    """
    A restart of dockerd in the first load must not end it.
    """
    stage = Stage().to_starting_engine()
    effects = stage.machine.stopped()

    assert [effect.attempts.count for effect in effects] == [0]


def test_stopped_container_that_serves_has_nothing_to_get_back() -> None:
    stage = Stage(attempts=attempts(count=2, ready_once=True)).to_serving()

    assert [effect.attempts.count for effect in stage.machine.stopped()] == [3]


def test_stopped_container_is_the_cause_afterwards() -> None:
    stage = Stage().to_serving()
    stage.machine.stopped()

    assert stage.machine.attempts.cause == "spark-1 was told to stop its container"


def test_new_boot_begins_anew_but_knows_that_it_was_ready() -> None:
    before = attempts(count=5, ready_once=True)

    assert before.resumed(release=RELEASE, boot_id="b2", node="spark-1") == attempts(
        boot_id="b2", ready_once=True
    )


def test_same_boot_changes_nothing() -> None:
    before = attempts(count=5, ready_once=True)

    assert before.resumed(release=RELEASE, boot_id="b1", node="spark-1") == before


def test_other_release_has_its_own_trial() -> None:
    before = attempts(release="old", count=5, ready_once=True)

    assert before.resumed(release=RELEASE, boot_id="b1", node="spark-1") == attempts(run="")


def test_new_up_begins_anew_after_giving_up() -> None:
    stage = Stage(attempts=attempts(count=5, ready_once=True, cause="why")).boot()
    stage.world["desired"] = Desired(run="run-2")
    stage.run(2)

    assert (stage.shown, stage.machine.attempts.count, stage.machine.attempts.ready_once) == (
        "starting-ray",
        1,
        False,
    )
    assert stage.machine.attempts.cause == ""


def test_new_up_in_the_middle_of_a_start_does_not_grant_another() -> None:
    stage = Stage().to_starting_engine()
    stage.world["desired"] = Desired(run="run-2")
    stage.step()
    fail(stage)

    assert (stage.shown, stage.machine.attempts.count) == ("gave-up", 1)


def test_new_up_does_not_wait_for_the_back_off() -> None:
    stage = Stage(attempts=attempts(count=3, ready_once=True)).to_starting_engine()
    fail(stage)
    stage.peer(WORKER, session="", phase="waiting-head")
    stage.world["desired"] = Desired(run="run-2")
    stage.run(4)

    assert stage.shown == "starting-ray"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"count": 1, "last_lines": 3}', "null"])
def test_broken_file_counts_nothing(text: str) -> None:
    assert parse_attempts(text) == Attempts()


def test_newer_file_with_unknown_keys_is_read() -> None:
    assert parse_attempts('{"schema": 9, "count": 2, "moon": "full"}') == Attempts(count=2)
