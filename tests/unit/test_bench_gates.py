"""What makes a repeat INVALID, what only warns, and that each says found, wanted and what to do."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.bench.gates import judge
from orchestrator.model.bench import ClientHealth, Gate, Level, NodeLoad, Repeat, ServerDelta, Spread
from tests.unit.closed_loop import LOAD, closed_loop, failed, healthy, measured

LEVEL = Level(4)
LOAD_101 = replace(LOAD, output_tokens=101)


def judged(repeat: Repeat, level: Level = LEVEL, **how) -> Repeat:
    return judge(repeat, level, LOAD_101, **how)


def gate(repeat: Repeat, name: str) -> Gate:
    (found,) = [one for one in repeat.gates if one.name == name]
    return found


@pytest.mark.parametrize("concurrency", [1, 2, 4, 16])
def test_a_healthy_level_passes_every_gate(concurrency):
    """No false alarm, at no concurrency."""
    repeat = judged(healthy(concurrency), Level(concurrency))
    assert [one.text for one in repeat.gates if not one.ok] == []
    assert len(repeat.gates) >= 12
    assert repeat.valid


@pytest.mark.parametrize(
    ("name", "server"),
    [
        ("prefix-hits", {"prefix_hits": 150}),  # of 8192
        ("preemptions", {"preemptions": 1}),
        ("waiting", {"running_max": 3, "waiting_share": 0.2}),
        ("others", {"in_flight_max": 5}),
        ("tokens", {"generation_tokens": 1617}),
        ("tokens", {"generation_tokens": 1615}),
        ("restarted", {"restarted": True}),
    ],
)
def test_what_the_server_says_of_itself_makes_a_level_invalid(name, server):
    """Each of them makes numbers that look better, or worse, than the deployment is."""
    repeat = judged(healthy(4, **server))
    assert [one.name for one in repeat.gates if not one.ok] == [name]
    assert not repeat.valid


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("delivered", {"delivered": 3.79}),
        ("client-lag", {"client": ClientHealth(lag_p99_ms=5.1)}),  # of 100 ms
        ("clock", {"client": ClientHealth(clock_jumps=1)}),
        ("streamed", {"decode_tok_s": None}),
        ("streamed", {"itl_ms": Spread(n=400, p50=0)}),  # a proxy that sends on 4 KiB at a time
        ("failures", {"failures": {"stall": 1}}),  # of 17
    ],
)
def test_what_the_client_sees_makes_a_level_invalid(name, change):
    """The limits of docs/bench.md."""
    repeat = judged(replace(healthy(), **change))
    assert name in [one.name for one in repeat.gates if not one.ok]
    assert not repeat.valid


@pytest.mark.parametrize("failure", ["short", "over", "miscount"])
def test_one_answer_of_another_length_is_enough(failure):
    """One in 200 is under the limit of failures, but the load was not the one that was asked for."""
    repeat = replace(healthy(), n_ok=200, output_tokens=200 * 101, failures={failure: 1}, server=None)
    assert [one.name for one in judged(repeat).gates if not one.ok and not one.warns] == ["lengths"]


def test_a_server_that_cannot_be_made_to_answer_at_length_is_told_and_not_thrown_out():
    """Without ignore_eos answers end where the model ends them."""
    repeat = judged(replace(healthy(), output_tokens=16 * 50, server=None), exact=False)
    assert not gate(repeat, "lengths").ok
    assert gate(repeat, "lengths").text.startswith("answers have 50 tokens on average, wanted 101")
    assert repeat.valid


def test_without_usage_the_length_of_an_answer_is_not_said_to_be_right():
    """No short answer fails there, so that none of them proves nothing."""
    repeat = judged(replace(healthy(), output_tokens=16 * 50, attribution={"chunks": 16}, server=None))
    assert not gate(repeat, "lengths").ok
    assert repeat.valid


def test_one_failure_in_a_hundred_is_allowed_and_its_tokens_too():
    """The server has counted what it sent before the connection broke."""
    repeat = measured([*closed_loop(4, 25), failed(slot=1)], 4)
    told = replace(healthy(4).server, generation_tokens=100 * 101 + 60, requests=101)
    assert judged(replace(repeat, server=told)).valid


def test_requests_that_wait_for_a_prefill_only_warn():
    """All of them run in the end: a queue in front of a wave's prefills is what the level is."""
    repeat = judged(healthy(4, waiting_share=0.3, running_max=4))
    assert (gate(repeat, "waiting").ok, repeat.valid) == (False, True)


def test_in_an_open_loop_waiting_only_warns():
    """Its latency, counted from when a request was due, has the queue in it."""
    repeat = judged(healthy(4, waiting_share=0.9), Level(rate=2))
    assert (gate(repeat, "waiting").ok, repeat.valid) == (False, True)
    assert not {"delivered", "others"} & {one.name for one in repeat.gates}


def test_somebody_else_s_requests_are_named():
    """Token sums differ for two reasons: a wrong counter, or a second user."""
    foreign = judged(healthy(4, generation_tokens=5000, requests=20))
    assert gate(foreign, "tokens").text.endswith(
        "it finished 20 requests, 16 were ours; somebody else is using the server"
    )
    assert "counts wrongly" in gate(judged(healthy(4, generation_tokens=1600)), "tokens").text


def test_chunks_of_several_tokens_without_usage_are_no_bug_to_report():
    """One a chunk is all that can be counted there."""
    chunks = replace(healthy(4, generation_tokens=5000), attribution={"chunks": 16})

    assert gate(judged(chunks), "tokens").text.endswith("each chunk was counted as one token")


def test_a_level_without_a_complete_request_is_invalid():
    """Nothing failed where nothing was sent: that alone would pass."""
    assert not judged(measured([], 4)).valid


def test_few_requests_warn():
    """Percentiles of four requests are four requests."""
    repeat = judged(replace(healthy(), n_ok=4, server=None))
    assert (gate(repeat, "samples").ok, repeat.valid) == (False, True)


def test_a_short_lag_is_allowed_where_tokens_come_fast():
    """5 % of 2 ms is what one timer tick takes; kernel stamps do not move with it."""
    fast = replace(healthy(), itl_ms=Spread(p50=2.0), client=ClientHealth(lag_p99_ms=0.9))
    assert judged(fast).valid
    assert not judged(replace(fast, client=ClientHealth(lag_p99_ms=1.1))).valid


@pytest.mark.parametrize(
    ("name", "change", "how"),
    [
        ("through-ssh", {}, {"through": "spark-a"}),
        ("server-metrics", {"server": None}, {}),
        (
            "server-metrics",
            {"server": ServerDelta(running_max=4, in_flight_max=4)},
            {},
        ),  # no counter at the end
        ("prompts", {"prompt_tokens": 16 * 400}, {}),
        ("attribution", {"attribution": {"even": 16}}, {}),
        ("throttled", {"nodes": (NodeLoad("spark-a", samples=9, throttled=("sw_thermal_slowdown",)),)}, {}),
        ("telemetry", {"nodes": (NodeLoad("spark-b", problem="no nvidia-smi"),)}, {}),
    ],
)
def test_what_is_worth_knowing_warns(name, change, how):
    """Such a level is marked, and stays valid."""
    repeat = judged(replace(healthy(), **change), **how)
    assert not gate(repeat, name).ok
    assert repeat.valid


def test_nodes_that_nobody_asked_about_are_not_missed():
    """`--url` has no nodes."""
    assert "telemetry" not in {one.name for one in judged(healthy()).gates}


def test_a_cache_that_was_asked_about_and_not_used_passes():
    """vLLM without prefix caching counts no queries."""
    assert gate(judged(healthy(4, prefix_queries=0, prefix_hits=0)), "prefix-hits").ok


def test_a_failed_gate_says_what_to_do():
    """Found, wanted, and a hint, in one line."""
    text = gate(judged(replace(healthy(), delivered=3.5)), "delivered").text
    assert text == (
        "3.50 requests were in flight on average, wanted 95% of 4 or more: "
        "the client is too slow, or requests are too short"
    )
    assert "\n" not in "".join(one.text for one in judged(healthy()).gates)


def test_a_late_read_only_warns_where_the_kernel_stamps_arrivals():
    """The arrivals are right all the same, until two tokens are found in one read; behind SSH nothing is known."""
    late = replace(healthy(), itl_ms=Spread(p50=100.0))
    late = replace(late, client=ClientHealth(lag_p99_ms=20, stamps="kernel"))
    later = replace(late, client=ClientHealth(lag_p99_ms=51, stamps="kernel"))

    assert [judged(late).valid, judged(later).valid, judged(late, through="spark-a").valid] == [
        True,
        False,
        False,
    ]


def test_where_all_failed_the_client_is_not_called_slow():
    """Nor would more requests help."""
    broken = replace(
        healthy(4), n_ok=0, prompt_tokens=0, output_tokens=0, failures={"empty": 16}, delivered=0.0
    )
    found = judged(broken).gates

    assert [one.name for one in found if one.name == "delivered"] == []
    assert [one.text.rpartition(": ")[2] for one in found if one.name == "samples"] == [
        "see why all of them failed"
    ]
