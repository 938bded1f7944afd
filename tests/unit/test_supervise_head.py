"""The head's state machine, with a fake clock and a world that changes only when told to."""

from __future__ import annotations

import pytest

from supervisor.settings import Desired
from supervisor.step import Answer, Clean, StartEngine, Watch
from supervisor.watching import Activity, Counters
from tests.unit.supervision import HEAD, IPS, WORKER, Stage, attempts

# -- the way to serving


def test_way_to_serving_passes_the_phases_in_order() -> None:
    assert Stage().to_serving().phases == [
        "booting",
        "waiting-peers",
        "starting-ray",
        "joining",
        "starting-engine",
        "probing",
        "serving",
    ]


def test_leftovers_of_the_container_are_cleaned_before_anything_starts() -> None:
    """
    A killed init leaves /tmp/ray and shared memory behind; there is no evidence to save.
    """
    stage = Stage()
    stage.step()

    assert stage.done("Clean") == [Clean(1, None)]


def test_nothing_starts_without_the_token() -> None:
    """
    Without it nobody could be told from a stranger.
    """
    stage = Stage()
    stage.world["token"] = False
    stage.boot()
    stage.run(60)

    assert (stage.shown, stage.machine.progress) == ("booting", "run/secrets.env has no SPARK_DEPLOY_TOKEN")


def test_missing_fabric_address_is_shown_and_costs_nothing() -> None:
    stage = Stage()
    stage.world["address_error"] = "fabric address 192.168.200.1: Cannot assign requested address"
    stage.boot()
    stage.run(3600)

    assert (stage.shown, stage.machine.attempts.count) == ("waiting-address", 0)
    assert "192.168.200.1" in stage.machine.progress


def test_fabric_address_that_goes_while_peers_are_waited_for_is_shown() -> None:
    stage = Stage()
    stage.peer(WORKER, phase="failed")
    stage.boot()
    stage.run(10)
    before = stage.shown
    stage.world["address_error"] = "fabric address 192.168.200.1: Cannot assign requested address"
    stage.step()

    assert (before, stage.shown) == ("waiting-peers", "waiting-address")


def test_missing_peer_is_named_and_costs_nothing() -> None:
    stage = Stage(nodes=3)
    stage.silent = {"spark-3"}
    stage.heard_at["spark-3"] = 0
    stage.boot()
    stage.run(3600)

    assert (stage.shown, stage.machine.missing, stage.machine.attempts.count) == (
        "waiting-peers",
        ("spark-3",),
        0,
    )
    assert stage.machine.progress == "waiting for spark-3 (not heard)"


@pytest.mark.parametrize("phase", ["failed", "backing-off", "down", "joined"])
def test_peer_that_has_not_let_go_is_waited_for(phase: str) -> None:
    """
    Otherwise ranks of two sessions could be there at once.
    """
    stage = Stage()
    stage.peer(WORKER, phase=phase)
    stage.boot()
    stage.run(10)

    assert stage.machine.progress == f"waiting for spark-2 ({phase})"


def test_peer_of_another_release_is_told() -> None:
    stage = Stage()
    stage.world["foreign_release"] = {WORKER: "ffff00000000"}
    stage.boot()
    stage.run(10)

    assert stage.machine.progress == "waiting for spark-2 (runs release ffff00000000)"


def test_session_is_announced_only_once_rays_port_is_open() -> None:
    """
    A worker's `ray start` blocks for ever on a head that is not there.
    """
    stage = Stage().to_starting_ray()
    before = stage.machine.said().session
    stage.answer("cache", 0)
    stage.wait_for("port")
    stage.answer("port", value=True)

    assert before == ""
    assert stage.machine.said().session == stage.machine.session != ""


def test_next_session_too_is_announced_only_once_rays_port_is_open() -> None:
    stage = Stage().to_serving()
    stage.exits = {"ray": 1}
    stage.step()
    stage.answer("clean")
    stage.peer(WORKER, session="", ray=False, phase="waiting-head")
    stage.run(5)

    assert (stage.shown, stage.machine.said().session) == ("starting-ray", "")


def test_every_start_is_a_new_session() -> None:
    stage = Stage().to_serving()
    first = stage.machine.session
    stage.exits = {"ray": 1}
    stage.step()
    stage.restart()

    assert stage.machine.session != first


def test_ray_that_does_not_listen_has_a_limit() -> None:
    stage = Stage().to_starting_ray()
    stage.run(61)

    assert stage.machine.attempts.cause == "Ray does not listen on 192.168.200.1:6379 after 60 s"


# -- the join


def join(stage: Stage, *members: tuple[str, float]) -> None:
    stage.workers_join()
    stage.wait_for("members")
    stage.answer("members", list(members))


def test_engine_starts_once_every_node_is_in_ray_with_its_gpu() -> None:
    stage = Stage().to_joining()
    join(stage, (IPS[HEAD], 1.0), (IPS[WORKER], 1.0))

    assert stage.done("StartEngine") == [StartEngine(stage.machine.session)]


def test_worker_that_never_joins_is_named_in_time_with_its_own_lines() -> None:
    stage = Stage().to_joining()
    began = stage.now
    stage.peer(WORKER, lines=("Failed to connect to GCS at address 192.168.200.1:6379 within 5 seconds.",))
    while stage.shown == "joining" and stage.now < began + 60:
        stage.step()
        if stage.asked("members"):
            stage.answer("members", [(IPS[HEAD], 1.0)])

    assert stage.now - began < 30
    assert stage.machine.attempts.cause == "spark-2 (192.168.200.2) did not join Ray in 25 s"
    assert (stage.machine.attempts.cause_node, stage.machine.attempts.last_lines) == (
        WORKER,
        stage.beats[WORKER].lines,
    )


def test_head_that_ray_registered_elsewhere_is_named_at_once() -> None:
    """
    Lesson 3 of the reference deployment: Ray took the external address, which the worker cannot reach.
    """
    stage = Stage().to_joining()
    join(stage, ("10.1.230.180", 1.0), (IPS[WORKER], 1.0))

    assert stage.machine.attempts.cause == "Ray registered spark-1 under 10.1.230.180, wanted 192.168.200.1"


def test_node_without_gpu_is_named() -> None:
    stage = Stage().to_joining()
    join(stage, (IPS[HEAD], 1.0), (IPS[WORKER], 0.0))

    assert stage.machine.attempts.cause == "spark-2 joined Ray without a GPU"


def test_stranger_in_ray_is_named() -> None:
    stage = Stage().to_joining()
    join(stage, (IPS[HEAD], 1.0), (IPS[WORKER], 1.0), ("192.168.200.9", 1.0))

    assert stage.machine.attempts.cause == "192.168.200.9 joined Ray and is no node of home"


def test_ray_start_that_fails_on_a_worker_ends_the_attempt_with_its_words() -> None:
    stage = Stage().to_joining()
    stage.peer(
        WORKER, left=stage.machine.session, cause="ray exited with 1", cause_node=WORKER, lines=("why",)
    )
    stage.step()

    assert (stage.machine.attempts.cause, stage.machine.attempts.cause_node) == ("ray exited with 1", WORKER)
    assert stage.machine.attempts.last_lines == ("why",)


def test_engine_waits_for_the_page_cache() -> None:
    """
    Page cache counts as used memory for CUDA.
    """
    stage = Stage().to_starting_ray()
    stage.wait_for("port")
    stage.answer("port", value=True)
    join(stage, (IPS[HEAD], 1.0), (IPS[WORKER], 1.0))
    before = stage.done("StartEngine")
    stage.answer("cache", 7)

    assert before == []
    assert len(stage.done("StartEngine")) == 1


def test_page_cache_that_cannot_be_dropped_does_not_stop_the_start() -> None:
    stage = Stage().to_starting_ray()
    stage.wait_for("port")
    stage.answer("port", value=True)
    join(stage, (IPS[HEAD], 1.0), (IPS[WORKER], 1.0))
    stage.run(40)

    assert len(stage.done("StartEngine")) == 1


# -- the start of the engine


def test_progress_is_what_the_log_says() -> None:
    stage = Stage().to_starting_engine()
    stage.log("Loading safetensors checkpoint shards:  43% Completed | 3/7 [00:10<00:14,  3.6s/it]")

    assert stage.machine.progress == "weights 3/7"


def test_refused_health_while_loading_is_no_failure() -> None:
    stage = Stage().to_starting_engine()
    for _ in range(100):
        stage.wait_for("health")
        stage.answer("health", error="ConnectionRefusedError")

    assert stage.shown == "starting-engine"


def test_open_port_alone_is_not_serving() -> None:
    """
    /health 200 with a dead compiler behind it has been seen: the first request kills the engine.
    """
    stage = Stage().to_probing()
    stage.answer("probe", 500)

    assert stage.machine.attempts.cause == "/health is 200, but a one-token completion failed: HTTP 500"


def test_tcp_where_rdma_is_wanted_stops_the_start_at_once() -> None:
    """
    Before a quarter of an hour of loading, which would end in a tenth of the speed.
    """
    stage = Stage(transport="rdma").to_starting_engine()
    stage.log("NCCL INFO Using network Socket")

    assert stage.machine.attempts.cause.startswith("transport is NET/Socket (TCP), wanted NET/IB (RDMA)")


def test_tcp_where_tcp_is_wanted_is_only_told() -> None:
    stage = Stage(transport="tcp").to_starting_engine()
    stage.log("NCCL INFO Using network Socket")

    assert (stage.shown, stage.machine.transport) == ("starting-engine", "NET/Socket")


def test_start_has_a_limit_and_names_the_last_phase() -> None:
    """
    Lesson 2: a NCCL start-up that hangs is time-boxed, and both nodes' last lines are shown.
    """
    stage = Stage(limits={"start_limit_s": 300}).to_starting_engine()
    stage.peer(WORKER, lines=("the worker's last line",))
    stage.log("vLLM is using nccl==2.28.9")
    stage.world["activity"] = Activity(0, 0)
    stage.run(301)

    assert stage.machine.attempts.cause == "not ready in 300 s, last seen: ranks connecting"
    assert stage.machine.attempts.last_lines == (
        "[spark-2] the worker's last line",
        "vLLM is using nccl==2.28.9",
    )


def test_start_that_does_nothing_is_stuck() -> None:
    stage = Stage().to_starting_engine()
    stage.run(610)

    assert "stuck: nothing read, computed or said for 600 s" in stage.machine.attempts.cause


@pytest.mark.parametrize("activity", [{"cpu_s": 0.5}, {"read_bytes": 1e6}])
def test_start_that_reads_or_compiles_is_not_stuck(activity: dict[str, float]) -> None:
    stage = Stage().to_starting_engine()
    for second in range(1200):
        stage.world["activity"] = Activity(**{key: second * rate for key, rate in activity.items()})
        stage.step(1)

    assert stage.shown == "starting-engine"


def test_compiling_on_the_worker_alone_is_activity() -> None:
    """
    The head waits for the other rank's kernels, and does nothing meanwhile.
    """
    stage = Stage().to_starting_engine()
    for second in range(1200):
        stage.peer(WORKER, cpu_s=second)
        stage.step(1)

    assert stage.shown == "starting-engine"


# -- failures


def test_any_exit_of_vllm_is_a_failure_also_exit_code_0() -> None:
    """
    It exits with 0 when its engine has died.
    """
    stage = Stage(attempts=attempts(ready_once=True)).to_serving()
    stage.exits = {"vllm": 0}
    stage.run(2)

    assert (stage.shown, stage.machine.attempts.cause) == ("failed", "vllm exited with 0")


def test_cause_names_the_node_that_the_log_names() -> None:
    stage = Stage(attempts=attempts(ready_once=True)).to_serving()
    stage.log(
        "(raylet) A worker died or was killed while executing a task. Worker IP address: 192.168.200.2 Worker"
    )
    stage.exits = {"vllm": 1}
    stage.run(2)

    assert stage.machine.attempts.cause_node == WORKER
    assert stage.machine.attempts.cause.endswith("died or was killed on spark-2 (192.168.200.2)")


def test_cause_of_a_peer_outweighs_the_engine_that_fell_with_it() -> None:
    """
    vLLM ends first when the worker's Ray is killed; a moment later the worker says so.
    """
    stage = Stage(attempts=attempts(ready_once=True)).to_serving()
    stage.exits = {"vllm": 0}
    stage.step()
    stage.peer(WORKER, session="", left=stage.machine.session, cause="ray exited with 1", cause_node=WORKER)
    stage.step()

    assert (stage.machine.attempts.cause, stage.machine.attempts.cause_node) == ("ray exited with 1", WORKER)


def test_exit_of_ray_is_a_failure() -> None:
    stage = Stage().to_serving()
    stage.exits = {"ray": 1}
    stage.step()

    assert (stage.shown, stage.machine.attempts.cause) == ("failed", "ray exited with 1")


def test_failure_ends_the_session_for_the_peers_in_the_same_step() -> None:
    stage = Stage().to_serving()
    old = stage.machine.session
    stage.exits = {"ray": 1}
    stage.step()

    said = stage.machine.said()
    assert (said.session, said.left, said.cause) == ("", old, "ray exited with 1")


def test_failure_keeps_evidence_and_cleans() -> None:
    stage = Stage().to_serving()
    stage.exits = {"ray": 1}
    effects = stage.step()

    clean = [effect for effect in effects if isinstance(effect, Clean)]
    assert [effect.failure.cause for effect in clean] == ["ray exited with 1"]


def test_cleaning_that_hangs_does_not_hang_us() -> None:
    stage = Stage(attempts=attempts(ready_once=True)).to_serving()
    stage.exits = {"ray": 1}
    stage.step()
    stage.run(70)

    assert stage.shown != "failed"


def test_unhealthy_engine_is_a_failure() -> None:
    stage = Stage().to_serving()
    stage.look(health=503)
    stage.run(2)

    assert stage.machine.attempts.cause == "/health answered 503"


def test_five_unanswered_looks_in_a_row_are_a_failure() -> None:
    stage = Stage().to_serving()
    for _ in range(4):
        stage.wait_for("watch")
        stage.answer("watch", error="TimeoutError: timed out")
    fourth = stage.shown
    stage.wait_for("watch")
    stage.answer("watch", error="TimeoutError: timed out")

    assert (fourth, stage.shown) == ("serving", "failed")


def test_answered_look_forgives_the_ones_before() -> None:
    stage = Stage().to_serving()
    for _ in range(20):
        stage.wait_for("watch")
        stage.answer("watch", error="TimeoutError: timed out")
        stage.look()

    assert stage.shown == "serving"


def test_unanswered_looks_of_an_earlier_session_count_nothing() -> None:
    stage = Stage().to_serving()
    for _ in range(4):
        stage.wait_for("watch")
        stage.answer("watch", error="TimeoutError: timed out")
    stage.exits = {"ray": 1}
    stage.step()
    stage.restart()
    stage.wait_for("watch")
    stage.answer("watch", error="TimeoutError: timed out")

    assert stage.shown == "serving"


def test_helper_thread_that_never_answers_counts_as_an_error() -> None:
    """
    Five looks of 5 s, and what they are late: a stopped API server is killed within a minute.
    """
    stage = Stage(limits={"hang_s": 600}).to_serving()
    began = stage.now
    while stage.shown == "serving":
        stage.step()

    assert stage.now - began < 65


# -- hangs


def busy(stage: Stage, seconds: float, *, stepping: bool) -> None:
    end, steps = stage.now + seconds, 100.0
    while stage.now < end and stage.shown in ("serving", "suspect") and not stage.asked("probe"):
        steps += stepping
        stage.look(requests=2, steps=steps)


def test_requests_without_engine_steps_are_suspect_and_probed() -> None:
    stage = Stage().to_serving()
    busy(stage, 200, stepping=False)

    assert (stage.shown, stage.machine.progress) == ("suspect", "no engine step for 120 s with 2 requests")
    assert stage.asked("probe")


def test_suspect_that_answers_is_serving_again() -> None:
    stage = Stage().to_serving()
    busy(stage, 200, stepping=False)
    stage.answer("probe", 200)
    stage.step()

    assert stage.shown == "serving"


def test_suspect_that_does_not_answer_is_a_hang() -> None:
    stage = Stage().to_serving()
    busy(stage, 200, stepping=False)
    stage.answer("probe", error="TimeoutError: timed out")

    assert stage.shown == "failed"
    assert stage.machine.attempts.cause == (
        "hang: no engine step for 120 s with 2 requests, and a one-token completion failed: it did not come back in time"
    )


def test_suspect_that_steps_again_is_serving_again() -> None:
    """
    A kernel that was compiled for minutes; the probe behind it may still be waiting.
    """
    stage = Stage().to_serving()
    busy(stage, 200, stepping=False)
    stage.look(requests=2, steps=500)
    again = stage.shown
    stage.answer("probe", error="TimeoutError: timed out")

    assert (again, stage.shown) == ("serving", "serving")


def test_busy_engine_that_steps_is_never_probed() -> None:
    """
    A completion behind a long queue would take longer than its limit.
    """
    stage = Stage().to_serving()
    busy(stage, 600, stepping=True)

    assert (stage.shown, stage.asked("probe")) == ("serving", None)


def test_idle_engine_is_probed_without_being_called_suspect() -> None:
    stage = Stage().to_serving()
    while not stage.asked("probe"):
        stage.look()

    assert stage.shown == "serving"


def test_idle_engine_that_does_not_answer_is_a_hang() -> None:
    """
    /health stays 200 with a stopped rank.
    """
    stage = Stage().to_serving()
    while not stage.asked("probe"):
        stage.look()
    stage.look(requests=1)  # our own
    stage.answer("probe", error="TimeoutError: timed out")

    assert (
        stage.machine.attempts.cause
        == "hang: idle, and a one-token completion failed: it did not come back in time"
    )


def test_request_after_a_quiet_hour_has_the_whole_time() -> None:
    stage = Stage(limits={"hang_s": 120}).to_serving()
    for _ in range(50):
        stage.look()
    began = stage.now
    while not stage.asked("probe"):
        stage.look(requests=1)

    assert stage.now - began > 119


def test_engine_without_counters_is_probed_instead() -> None:
    stage = Stage().to_serving()
    while not stage.asked("probe"):
        stage.wait_for("watch")
        stage.answer("watch", Watch(200))
    stage.answer("probe", error="TimeoutError: timed out")

    assert stage.shown == "failed"


# -- the link


def test_silent_link_is_shown_within_six_seconds_and_nothing_is_killed() -> None:
    stage = Stage().to_serving()
    stage.silent = {WORKER}
    stage.run(6)

    assert (stage.shown, stage.machine.progress) == ("link-lost", "nothing heard from spark-2")
    assert len(stage.done("Clean")) == 1, "the one at boot"


def test_link_that_comes_back_is_serving_after_a_one_token_completion() -> None:
    stage = Stage().to_serving()
    stage.silent = {WORKER}
    stage.run(20)
    stage.silent = set()
    stage.step()
    before = stage.shown
    stage.answer("probe", 200)

    assert (before, stage.shown) == ("link-lost", "serving")
    assert len(stage.done("Clean")) == 1, "the one at boot"


def test_link_that_comes_back_is_serving_once_the_engine_steps() -> None:
    """
    Behind a queue of requests the completion would come late.
    """
    stage = Stage().to_serving()
    stage.look(requests=1, steps=10)
    stage.silent = {WORKER}
    stage.run(20)
    stage.silent = set()
    stage.step()
    stage.wait_for("watch")
    stage.answer("watch", Watch(200, Counters(1, 11)))

    assert stage.shown == "serving"


def test_link_that_comes_back_to_a_dead_engine_is_a_failure() -> None:
    stage = Stage().to_serving()
    stage.silent = {WORKER}
    stage.run(20)
    stage.silent = set()
    stage.step()
    stage.answer("probe", error="TimeoutError: timed out")

    assert stage.shown == "failed"


def test_probe_that_the_cut_made_late_is_not_held_against_a_link_that_is_back() -> None:
    """
    Its time may be over in the very step in which the peer is heard again.
    """
    stage = Stage(limits={"hang_s": 15, "probe_s": 30}).to_serving()
    while not stage.asked("probe"):
        stage.look()
    stage.silent = {WORKER}
    stage.run(20)
    stage.silent = set()
    stage.step(answers=(Answer(stage.asked("probe"), "probe", error="TimeoutError: timed out"),))
    back = stage.shown
    stage.answer("probe", 200)

    assert (back, stage.shown) == ("link-lost", "serving")


def test_link_that_flaps_is_judged_only_when_it_stays() -> None:
    stage = Stage().to_serving()
    for _ in range(10):
        stage.silent = {WORKER}
        stage.run(20)
        stage.silent = set()
        stage.step()
        stage.silent = {WORKER}
        stage.run(20)
        assert stage.shown == "link-lost"
        if stage.asked("probe"):
            stage.answer("probe", error="TimeoutError: timed out")
    stage.silent = set()
    stage.step()
    stage.wait_for("probe")
    stage.answer("probe", 200)

    assert stage.shown == "serving"


def test_link_lost_is_no_hang() -> None:
    stage = Stage(limits={"hang_s": 15}).to_serving()
    stage.look(requests=2, steps=10)
    stage.silent = {WORKER}
    stage.run(50)

    assert (stage.shown, stage.asked("probe")) == ("link-lost", None)


def test_link_that_stays_away_ends_the_session_at_the_limit() -> None:
    stage = Stage().to_serving()
    stage.silent = {WORKER}
    began = stage.now
    while stage.shown != "failed":
        stage.run(0.5)

    assert 59 < stage.now - began < 62
    assert stage.machine.attempts.cause == "nothing heard from spark-2 for 60 s"


def test_link_lost_while_loading_is_shown_and_loading_goes_on() -> None:
    stage = Stage().to_starting_engine()
    stage.silent = {WORKER}
    stage.run(20)
    lost = stage.shown
    stage.silent = set()
    stage.step()

    assert (lost, stage.shown) == ("link-lost", "starting-engine")


# -- peers


def test_worker_that_leaves_ends_the_session() -> None:
    stage = Stage().to_serving()
    stage.peer(WORKER, session="", phase="waiting-head")
    stage.step()

    assert stage.machine.attempts.cause == "spark-2 left the session: it is waiting-head"


def test_worker_told_to_stop_is_the_cause() -> None:
    stage = Stage().to_serving()
    stage.peer(
        WORKER, session="", left=stage.machine.session, phase="down", cause="spark-2 was told to go down"
    )
    stage.step()

    assert (stage.machine.attempts.cause, stage.machine.attempts.cause_node) == (
        "spark-2 was told to go down",
        WORKER,
    )


def test_restarted_worker_is_another_incarnation_and_ends_the_session() -> None:
    """
    `docker restart` is back before the silence is noticed.
    """
    stage = Stage().to_serving()
    stage.peer(WORKER, incarnation="spark-2-i2")
    stage.step()

    assert stage.machine.attempts.cause == "spark-2 restarted its container"


def test_rebooted_worker_is_told_from_a_restarted_one() -> None:
    stage = Stage().to_serving()
    stage.peer(WORKER, incarnation="spark-2-i2", boot="b2")
    stage.step()

    assert stage.machine.attempts.cause == "spark-2 was rebooted"


def test_worker_that_has_not_yet_joined_does_not_end_the_session() -> None:
    stage = Stage().to_joining()
    stage.run(5)

    assert stage.shown == "joining"


# -- being told


def test_down_ends_everything_and_stays() -> None:
    stage = Stage().to_serving()
    stage.world["desired"] = Desired(down=True)
    stage.step()
    stage.answer("clean")
    stage.run(3600)

    said = stage.machine.said()
    assert (stage.shown, said.session, said.cause) == ("down", "", "spark-1 was told to go down")
    assert stage.done("Clean")[-1].failure is None


def test_down_node_stays_down_after_a_reboot() -> None:
    stage = Stage()
    stage.world["desired"] = Desired(down=True)
    stage.boot()
    stage.run(600)

    assert stage.shown == "down"


def test_up_after_down_serves_again() -> None:
    stage = Stage().to_serving()
    stage.world["desired"] = Desired(down=True)
    stage.step()
    stage.answer("clean")
    stage.world["desired"] = Desired(run="run-2")
    stage.peer(WORKER, session="", phase="waiting-head")
    stage.run(2)

    assert stage.shown == "starting-ray"


def test_new_run_does_not_disturb_a_serving_pair() -> None:
    """
    `up` again, unchanged, is nothing to do.
    """
    stage = Stage().to_serving()
    stage.world["desired"] = Desired(run="run-2")
    stage.run(10)

    assert (stage.shown, stage.machine.attempts.run, stage.machine.attempts.ready_once) == (
        "serving",
        "run-2",
        True,
    )


def test_bug_of_our_own_is_a_failed_attempt() -> None:
    stage = Stage(attempts=attempts(ready_once=True)).to_serving()
    effects = stage.machine.crashed("KeyError: 'x'")

    assert stage.shown == "failed"
    assert any(isinstance(effect, Clean) for effect in effects)
