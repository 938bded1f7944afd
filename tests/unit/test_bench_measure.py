"""Every figure of docs/bench.md, on requests whose times are known: formula, units, and what is left out."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bench.estimate import weighted
from orchestrator.bench.measure import histogram
from orchestrator.model.bench import Load, Request, Spread
from tests.unit.closed_loop import closed_loop, failed, measured, request

THREE_EVENTS = request(10.0, [10.5, 10.7, 11.3], [2, 1, 3])  # N = 6, n_1 = 2


def test_the_time_to_the_first_token_starts_when_the_request_is_sent():
    """Not when its slot was free: that is the client's queue, and has a figure of its own."""
    repeat = measured([request(10.0, [10.5], scheduled_s=9.0)])
    assert repeat.ttft_s.mean == pytest.approx(0.5)
    assert repeat.queue_s.mean == pytest.approx(1.0)
    assert repeat.response_s.mean == pytest.approx(1.5)


def test_the_tokens_of_the_first_event_are_not_decoded_ones():
    """With two tokens in the first event, 4 are decoded in 0.8 s."""
    repeat = measured([THREE_EVENTS])
    assert repeat.tpot_ms.mean == pytest.approx(200)
    assert repeat.decode_tok_s == pytest.approx(5)
    assert repeat.e2e_s.mean == pytest.approx(1.3)
    assert repeat.user_tok_s == pytest.approx(6 / 1.3)


def test_a_gap_between_events_is_shared_by_the_tokens_that_end_it():
    """Speculative decoding brings several tokens at once: per token 200, then three times 200 ms."""
    repeat = measured([THREE_EVENTS])
    assert repeat.itl_ms == Spread(
        n=4,
        mean=pytest.approx(200),
        sd=pytest.approx(0, abs=1e-9),
        minimum=pytest.approx(200),
        p50=pytest.approx(200),
        maximum=pytest.approx(200),
    )
    assert repeat.icl_ms.mean == pytest.approx(400)
    assert repeat.longest_gap_s == pytest.approx(0.6)
    assert repeat.tokens_per_event == pytest.approx(2)


def test_the_rate_of_a_level_is_the_mean_over_requests_and_in_harmonic_form():
    """One request decodes at 10, the other at 2 tok/s: 6 on average, but 20 tokens in 6 s."""
    repeat = measured(
        [request(0, [0.5 + k / 10 for k in range(11)]), request(0, [0.5 + k / 2 for k in range(11)])]
    )
    assert repeat.decode_tok_s == pytest.approx(6)
    assert repeat.decode_harmonic_tok_s == pytest.approx(20 / 6)


def test_an_answer_of_one_event_has_no_time_per_token():
    """Its rate would be infinite."""
    repeat = measured([request(0, [1.0], [300])])
    assert (repeat.tpot_ms.n, repeat.decode_tok_s, repeat.itl_ms.n) == (0, None, 0)
    assert repeat.user_tok_s == pytest.approx(300)


def test_events_of_one_read_have_no_rate():
    """Two events with one stamp: a time per token of 0, and no rate of it."""
    repeat = measured([request(0, [1.0, 1.0])])
    assert repeat.tpot_ms.mean == 0
    assert repeat.decode_tok_s is None


def test_reasoning_is_counted_and_the_first_token_of_the_answer_timed_apart():
    """A user who does not see the reasoning waits for the answer."""
    repeat = measured([request(0, [1.0, 2.0, 3.0], [2, 1, 4], answer=2)])
    assert (repeat.ttft_s.mean, repeat.ttfot_s.mean, repeat.reasoning_tokens) == (1.0, 3.0, 3)


def test_reasoning_that_never_ends_has_no_first_token_of_an_answer():
    """TTFOT does not exist there; it is no zero and no TTFT."""
    repeat = measured([request(0, [1.0, 2.0], [2, 1], answer=None)])
    assert (repeat.ttfot_s.n, repeat.reasoning_tokens) == (0, 3)


def test_failed_requests_enter_no_latency_and_no_throughput():
    """A request that broke after a fast start would make every mean look better."""
    broken = request(0, [0.01, 0.02], failure="disconnect", detail="reset by peer")
    repeat = measured([request(0, [1.0, 2.0]), broken, failed(failure="http_5xx", detail="500: no")])
    assert (repeat.ttft_s.n, repeat.ttft_s.mean) == (1, 1.0)
    assert (repeat.output_tokens, repeat.aggregate_tok_s) == (2, 1.0)
    assert repeat.failures == {"disconnect": 1, "http_5xx": 1}
    assert repeat.failure_details == ("disconnect: reset by peer", "http_5xx: 500: no")


def test_a_level_of_failures_has_no_figures():
    """None, not 0, and no exception."""
    repeat = measured([failed(), failed()], 2)
    figures = (
        repeat.aggregate_tok_s,
        repeat.steady_tok_s,
        repeat.decode_tok_s,
        repeat.ttft_s.mean,
        repeat.window_s,
    )
    assert figures == (None,) * 5
    assert (repeat.timeline, repeat.itl_histogram, repeat.n_ok) == ((), (), 0)


def test_a_level_without_requests_has_no_figures():
    """An interrupted level may have sent nothing."""
    assert measured([], 4).n_ok == 0


def test_the_steady_rate_of_an_ideal_server_is_its_rate():
    """16 slots, each 101 tokens in 11 s; the window [1, 33] has 3 of 4 waves in it, but 2 whole pauses of 1 s only."""
    repeat = measured(closed_loop(16, 4), 16)
    assert repeat.window_s == pytest.approx((1.0, 33.0))
    assert repeat.steady_tok_s == pytest.approx(16 * (3 * 101 - 1) / 32)


def test_the_rate_of_a_run_is_all_tokens_over_all_of_the_time():
    """From the first send to the last token."""
    repeat = measured(closed_loop(16, 4), 16)
    assert repeat.span_s == pytest.approx(44)
    assert repeat.aggregate_tok_s == pytest.approx(16 * 404 / 44)
    assert repeat.requests_s == pytest.approx(64 / 44)


@pytest.mark.parametrize(
    ("requests", "concurrency"),
    [
        (closed_loop(4, 2), 4),  # one request's time long
        (closed_loop(4, 6, ttft_s=0.1, step_s=0.005), 4),  # 2.9 s
        (closed_loop(3, 6), 4),  # a slot never began
    ],
    ids=["shorter than two requests", "shorter than 5 s", "never full"],
)
def test_a_window_that_is_too_short_to_count_is_none(requests, concurrency):
    """The ends of a short window weigh as much as its middle: then only the run's rate is given."""
    repeat = measured(requests, concurrency)
    assert (repeat.window_s, repeat.steady_tok_s) == (None, None)


def test_a_slot_whose_first_request_broke_is_full_with_its_next_one():
    """One fault of a long level does not cost the window."""
    requests = [failed(slot=0), *closed_loop(4, 6)]
    assert measured(requests, 4).window_s == pytest.approx((1.0, 55.0))


@pytest.mark.parametrize("waves", [1, 3, 6])
def test_a_server_that_is_always_full_delivers_its_concurrency(waves):
    """The tail, in which slots find nothing more to send, is no fault: neither with a window nor without one."""
    assert measured(closed_loop(8, waves), 8).delivered == pytest.approx(8)


def test_a_last_wave_that_is_not_full_is_no_missing_concurrency():
    """12 requests in 8 slots that end microseconds apart: 4 of them have nothing more to send, the others go on."""
    first = [request(0, [0.1, 0.284 + k * 1e-5], slot=k) for k in range(8)]
    ends = [one.arrivals_s[-1] for one in first[4:]]
    second = [request(end, [end + 0.1, end + 0.284], slot=4 + k) for k, end in enumerate(ends)]
    assert measured([*first, *second], 8).delivered == pytest.approx(8, rel=0.001)


def test_a_slot_that_broke_early_is_missing_from_the_concurrency():
    """Its socket could not be opened any more: the level went on with 3 of 4."""
    requests = [one for one in closed_loop(4, 2) if (one.slot, one.sent_s) != (3, 11.0)]
    requests += closed_loop(3, 3)[-3:]
    assert measured(requests, 4).delivered == pytest.approx(3.5)


def test_slots_that_stand_idle_are_missing_from_the_concurrency():
    """A client that sends its next request 1 s late, after 4 s, delivers 80 %."""
    late = [request(5.0 * k, [5.0 * k + 1, 5.0 * k + 4], slot=slot) for k in range(9) for slot in range(2)]
    assert measured(late, 2).delivered == pytest.approx(1.6, rel=0.03)


def test_an_open_loop_has_no_concurrency_to_deliver_and_no_window():
    """Its load is a rate."""
    repeat = measured(closed_loop(1, 12), 0, rate=0.1)
    assert (repeat.delivered, repeat.window_s, repeat.prefill_tok_s) == (None, None, None)


def test_the_prefill_rate_is_given_for_single_requests_only():
    """In company the time to the first token has others' prefills in it."""
    assert measured(closed_loop(1, 3), 1).prefill_tok_s == pytest.approx(512)
    assert measured(closed_loop(2, 3), 2).prefill_tok_s is None


def test_goodput_counts_requests_that_meet_every_objective():
    """One is too slow at first, one in between, one has failed: 1 of 4 in 3 s."""
    good, slow_first, slow = (
        request(0, [0.5, 0.6]),
        request(0, [1.5, 1.6]),
        request(0, [0.5, 3.0]),
    )
    load = Load(slo={"ttft": 1.0, "tpot": 0.2})
    goodput = measured([good, slow_first, slow, failed()], load=load).goodput
    assert (goodput.share, goodput.requests_s) == (0.25, pytest.approx(1 / 3))
    assert measured([good]).goodput is None


def test_in_an_open_loop_objectives_count_from_when_a_request_was_due():
    """Otherwise a client that falls behind would hide the queue."""
    late = request(5.0, [5.5, 5.6], scheduled_s=4.0)
    load = Load(slo={"ttft": 1.0})
    assert measured([late], 0, rate=1.0, load=load).goodput.share == 0
    assert measured([late], 1, load=load).goodput.share == 1


def test_it_is_known_how_tokens_were_attributed():
    """Estimates are marked in the result."""
    repeat = measured([request(0, [1.0]), request(0, [1.0], attribution="even")])
    assert repeat.attribution == {"usage": 1, "even": 1}


@st.composite
def requests_of_a_level(draw) -> list[Request]:
    """Up to 4 slots of up to 5 requests, one after the other."""
    found = []
    for slot in range(draw(st.integers(1, 4))):
        now = draw(st.floats(0, 2))
        for _ in range(draw(st.integers(1, 5))):
            steps = draw(st.lists(st.floats(0, 30), min_size=1, max_size=12))
            arrivals = [now + math.fsum(steps[: k + 1]) for k in range(len(steps))]
            tokens = draw(st.lists(st.integers(1, 5), min_size=len(steps), max_size=len(steps)))
            found.append(request(now, arrivals, tokens, slot=slot))
            now = arrivals[-1] + draw(st.floats(0, 1))
    return found


@given(requests_of_a_level())
def test_no_token_is_lost_or_made_up(requests):
    """Histogram, weights and timeline have the tokens of the run, whatever its times are."""
    repeat = measured(requests, 4)
    total, first = sum(sum(one.tokens) for one in requests), sum(one.tokens[0] for one in requests)
    assert repeat.output_tokens == total
    assert repeat.itl_ms.n == sum(n for _, n in repeat.itl_histogram) == total - first
    if len(repeat.timeline) > 1:
        width = repeat.timeline[1][0]
        assert sum(rate for _, rate, _ in repeat.timeline) * width == pytest.approx(total, rel=1e-6)


@given(requests_of_a_level())
def test_the_sum_of_latencies_is_the_integral_of_requests_in_flight(requests):
    """Little's law, which delivered concurrency is taken by."""
    repeat = measured(requests, 4)
    if len(repeat.timeline) > 1:
        in_flight_s = math.fsum(in_flight for _, _, in_flight in repeat.timeline) * repeat.timeline[1][0]
        assert in_flight_s == pytest.approx(
            math.fsum(one.arrivals_s[-1] - one.sent_s for one in requests), abs=1e-6
        )


@given(requests_of_a_level())
def test_a_window_lies_within_its_run_and_has_no_more_than_its_tokens(requests):
    """The steady rate is one of a part of the run."""
    repeat = measured(requests, len({one.slot for one in requests}))
    if repeat.window_s:
        start_s, end_s = repeat.window_s
        assert end_s - start_s >= max(5, 2 * (repeat.e2e_s.p50 or 0)) - 1e-9
        assert repeat.steady_tok_s * (end_s - start_s) <= repeat.output_tokens + 1e-6
        assert repeat.delivered <= len({one.slot for one in requests}) + 1e-9


@given(st.lists(st.tuples(st.floats(0, 1e7), st.integers(1, 9)), min_size=1, max_size=60))
def test_a_histogram_has_at_most_60_bins_and_every_value_in_its_own(gaps):
    """From a microsecond to hours: bins grow wider, not more."""
    values, tokens = zip(*gaps, strict=True)
    bins = histogram(weighted(values, tokens))
    assert len(bins) <= 60
    assert sum(n for _, n in bins) == sum(tokens)
    assert bins[-1][0] >= max(values) * (1 - 1e-9)
    assert [edge for edge, _ in bins] == sorted(edge for edge, _ in bins)


@given(st.floats(0.001, 1e6))
def test_a_timeline_has_a_few_hundred_points_however_long_the_run(span_s):
    """A page draws it."""
    points = measured([request(0, [span_s])]).timeline
    assert 1 <= len(points) <= 300
