"""The worker's state machine: its Ray lives exactly as long as the head's session."""

from __future__ import annotations

import math

from supervisor.beat import Beat
from supervisor.settings import Desired
from supervisor.step import StartRay
from tests.unit.supervision import HEAD, RELEASE, WORKER, Stage


def waiting() -> Stage:
    stage = Stage(node=WORKER).boot()
    stage.step()
    assert stage.shown == "waiting-head"
    return stage


def starting() -> Stage:
    stage = waiting()
    stage.peer(HEAD, session="s-1", ray=True, phase="joining")
    stage.step()
    assert stage.shown == "starting-ray"
    return stage


def joined() -> Stage:
    stage = starting()
    stage.log("2026-11-30 19:01:21,481\tSUCC scripts.py:1251 -- Ray runtime started.", source="ray")
    assert stage.shown == "joined"
    return stage


def serving() -> Stage:
    stage = joined()
    stage.peer(HEAD, phase="serving")
    stage.step()
    assert stage.shown == "serving"
    return stage


def test_worker_starts_its_ray_for_the_heads_session() -> None:
    stage = starting()

    assert stage.done("StartRay") == [StartRay("s-1")]
    assert stage.machine.said().session == "s-1"


def test_head_without_session_is_waited_for_without_end() -> None:
    stage = waiting()
    stage.run(3600)

    assert (stage.shown, stage.machine.progress) == ("waiting-head", "spark-1 is waiting-peers")


def test_silent_head_is_named() -> None:
    stage = waiting()
    stage.silent = {HEAD}
    stage.run(10)

    assert (stage.machine.missing, stage.machine.progress) == ((HEAD,), "spark-1 is not heard")


def test_session_of_a_silent_head_is_not_joined() -> None:
    """
    What was heard long ago is no session.
    """
    stage = waiting()
    stage.silent = {HEAD}
    stage.run(10)
    stage.peer(HEAD, session="s-1")
    stage.run(10)

    assert stage.shown == "waiting-head"


def test_head_of_another_release_is_told() -> None:
    stage = waiting()
    stage.world["foreign_release"] = {HEAD: "ffff00000000"}
    stage.step()

    assert stage.machine.progress == "spark-1 runs release ffff00000000"


def test_worker_is_in_once_its_ray_says_so() -> None:
    assert joined().machine.said().ray


def test_last_lines_go_to_the_head_while_ray_is_not_up() -> None:
    """
    So the head can show why a worker does not join.
    """
    stage = starting()
    stage.log("Failed to connect to GCS at address 192.168.200.1:6379 within 5 seconds.", source="ray")

    assert stage.machine.said().lines == (
        "Failed to connect to GCS at address 192.168.200.1:6379 within 5 seconds.",
    )


def test_worker_serves_when_the_head_says_so() -> None:
    assert serving().machine.progress == "spark-1 is serving"


def test_exit_of_its_ray_is_told_with_the_last_lines() -> None:
    stage = starting()
    stage.log("Failed to connect to GCS", source="ray")
    stage.exits = {"ray": 1}
    stage.step()

    said = stage.machine.said()
    assert (said.session, said.left, said.cause, said.cause_node) == ("", "s-1", "ray exited with 1", WORKER)
    assert said.lines == ("Failed to connect to GCS",)


def test_left_session_is_never_rejoined() -> None:
    """
    The head needs a moment to hear that we left; its session is dead to us.
    """
    stage = joined()
    stage.exits = {"ray": 1}
    stage.step()
    stage.answer("clean")
    stage.run(30)

    assert stage.shown == "waiting-head"


def test_next_session_is_joined() -> None:
    stage = joined()
    stage.exits = {"ray": 1}
    stage.step()
    stage.answer("clean")
    stage.peer(HEAD, session="s-2")
    stage.run(10)

    assert stage.done("StartRay")[-1] == StartRay("s-2")


def test_worker_is_in_the_next_session_only_once_its_ray_says_so() -> None:
    stage = joined()
    stage.exits = {"ray": 1}
    stage.step()
    stage.answer("clean")
    stage.peer(HEAD, session="s-2")
    stage.run(10)

    assert (stage.shown, stage.machine.said().ray) == ("starting-ray", False)


def test_session_that_ended_unheard_is_left_without_its_cause() -> None:
    """
    The head is already two sessions on: why ours ended is no longer said.
    """
    stage = serving()
    stage.peer(HEAD, session="s-3", left="s-2", phase="joining", cause="why s-2 ended")
    stage.step()

    assert stage.machine.attempts.cause == "spark-1 left the session: it is joining"


def test_new_session_of_the_head_ends_the_old_one_here_with_the_heads_cause() -> None:
    stage = serving()
    stage.peer(HEAD, session="", left="s-1", phase="failed", cause="vllm exited with 0", cause_node=HEAD)
    stage.step()

    assert (stage.shown, stage.machine.attempts.cause, stage.machine.attempts.cause_node) == (
        "failed",
        "vllm exited with 0",
        HEAD,
    )


def test_head_that_is_down_ends_the_session() -> None:
    stage = serving()
    stage.peer(HEAD, session="", left="s-1", phase="down", cause="spark-1 was told to go down")
    stage.step()

    assert stage.machine.attempts.cause == "spark-1 was told to go down"


def test_restarted_head_ends_the_session() -> None:
    stage = serving()
    stage.peer(HEAD, incarnation="spark-1-i2")
    stage.step()

    assert stage.machine.attempts.cause == "spark-1 restarted its container"


def test_silent_head_is_shown_and_left_at_the_limit() -> None:
    stage = serving()
    stage.silent = {HEAD}
    stage.run(6)
    shown = stage.shown
    stage.run(55)

    assert (shown, stage.shown) == ("link-lost", "failed")
    assert stage.machine.attempts.cause == "nothing heard from spark-1 for 60 s"


def test_head_heard_again_in_time_is_as_before() -> None:
    stage = serving()
    stage.silent = {HEAD}
    stage.run(20)
    stage.silent = set()
    stage.step()

    assert stage.shown == "serving"
    assert len(stage.done("Clean")) == 1, "the one at boot"


def test_ray_start_that_blocks_has_a_limit() -> None:
    """
    `ray start --address` blocks for ever on a dead head (5 min 21 s seen, then killed).
    """
    stage = starting()
    stage.run(61)

    assert stage.machine.attempts.cause == "ray start did not join 192.168.200.1:6379 in 60 s"


def test_worker_never_gives_up_by_itself() -> None:
    """
    The head counts, for both.
    """
    stage = waiting()
    for number in range(20):
        stage.peer(HEAD, session=f"t-{number}")
        stage.run(1)
        stage.exits = {"ray": 1}
        stage.step()
        stage.answer("clean")
        stage.run(4)

    assert stage.shown in ("starting-ray", "waiting-head")
    assert stage.machine.attempts.count == 0


def test_worker_never_gives_up_also_when_it_is_killed_after_an_up_in_the_middle_of_a_start() -> None:
    stage = joined()
    stage.world["desired"] = Desired(run="run-2")
    stage.step()
    kept = stage.machine.attempts.resumed(release=RELEASE, boot_id="b1", node=WORKER)

    again = Stage(node=WORKER, attempts=kept)
    again.world["desired"] = Desired(run="run-2")

    assert again.boot().shown == "waiting-head"


def test_silence_between_two_workers_ends_the_session() -> None:
    stage = Stage(node=WORKER, nodes=3).boot()
    stage.step()
    stage.peer(HEAD, session="s-1", phase="joining")
    stage.step()
    stage.log("Ray runtime started.", source="ray")
    stage.silent = {"spark-3"}
    stage.run(62)

    assert stage.machine.attempts.cause == "nothing heard from spark-3 for 60 s"


def test_other_worker_that_was_never_heard_does_not_end_the_session() -> None:
    """
    The head hears it: a session begins only with all.
    """
    stage = Stage(node=WORKER, nodes=3)
    stage.beats["spark-3"], stage.heard_at["spark-3"] = Beat(), -math.inf
    stage.silent = {"spark-3"}
    stage.boot()
    stage.step()
    stage.peer(HEAD, session="s-1", phase="joining")
    stage.step()
    stage.log("Ray runtime started.", source="ray")
    stage.run(62)

    assert (stage.shown, stage.machine.session) == ("link-lost", "s-1")


def test_worker_waits_for_its_memory_before_it_is_ready_again() -> None:
    """
    The head starts only when every worker is waiting for it.
    """
    stage = joined()
    stage.exits = {"ray": 1}
    stage.step()
    stage.answer("clean")
    for second in range(10):
        stage.world["available_kb"] = 10_000_000 + second * 1_000_000
        stage.step(1)

    assert stage.shown == "backing-off"


def test_down_worker_leaves_the_session() -> None:
    stage = serving()
    stage.world["desired"] = Desired(down=True)
    stage.step()

    assert (stage.machine.said().session, stage.machine.said().phase) == ("", "down")
