"""/metrics of many versions of vLLM: names, labels, restarts, and servers that are not vLLM."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bench.counters import Counters, Gauges, delta, gauges, parse

# vLLM 0.32 after two requests, without the buckets; the labels are its own.
RECORDED = Path(__file__).parents[1] / "fixtures" / "engine" / "metrics-vllm-0.32.txt"
LABELS = '{engine="0",model_name="tiny"}'


def test_the_page_of_a_real_vllm_is_read():
    """Two requests of 14 prompt tokens each, 316 tokens in 316 steps."""
    values = parse(RECORDED.read_text()).values
    assert values["generation_tokens"] == 316
    assert (values["prompt_tokens"], values["prefix_queries"], values["prefix_hits"]) == (28, 28, 0)
    assert (values["requests"], values["iteration_count"], values["iteration_sum"]) == (2, 316, 344)
    assert values["ttft_sum"] == pytest.approx(19.6234, abs=1e-4)
    assert gauges(RECORDED.read_text()) == Gauges(0, 0, 0)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("gpu_prefix_cache_queries_total", "prefix_queries"),  # 0.8
        ("prefix_cache_queries_total", "prefix_queries"),
        ("prefix_cache_hits", "prefix_hits"),  # without _total, as through some collectors
        ("gpu_prefix_cache_hits_total", "prefix_hits"),
        ("time_per_output_token_seconds_sum", "itl_sum"),  # 0.8 to 0.10
        ("inter_token_latency_seconds_sum", "itl_sum"),
        ("spec_decode_num_drafts_total", "drafts"),
        ("spec_decode_num_accepted_tokens_total", "accepted_tokens"),
        ("num_preemptions_total", "preemptions"),
    ],
)
def test_old_and_new_names_are_one(line, name):
    """vLLM renamed them between 0.8 and 0.33."""
    assert parse(f"vllm:{line}{LABELS} 7.0\n").values == {name: 7}


def test_names_that_stand_side_by_side_are_counted_once():
    """0.9 to 0.12 write the same number under both names."""
    both = f"vllm:gpu_prefix_cache_hits_total{LABELS} 5.0\nvllm:prefix_cache_hits_total{LABELS} 5.0\n"
    assert parse(both).values == {"prefix_hits": 5}


def test_names_that_begin_alike_are_told_apart():
    """As are positions of drafts, reasons of waiting, and when a counter was made."""
    text = "\n".join(
        [
            f"vllm:generation_tokens_created{LABELS} 1.7e+09",
            f"vllm:num_requests_waiting_by_reason{LABELS} 9",
            f"vllm:spec_decode_num_accepted_tokens_per_pos_total{LABELS} 9",
            f"vllm:request_generation_tokens_sum{LABELS} 9",
            f"vllm:request_time_per_output_token_seconds_sum{LABELS} 9",
        ]
    )
    assert parse(text) == Counters()
    assert gauges(text) == Gauges()


def test_engines_are_summed_and_the_fullest_cache_is_shown():
    """Data parallel engines have a line each; so have the reasons for which requests ended."""
    text = "\n".join(
        line
        for engine, (running, kv) in enumerate([(3, 0.2), (4, 0.7)])
        for line in (
            f'vllm:num_requests_running{{engine="{engine}"}} {running}',
            f'vllm:kv_cache_usage_perc{{engine="{engine}"}} {kv}',
            f'vllm:request_success_total{{engine="{engine}",finished_reason="stop"}} 1',
            f'vllm:request_success_total{{engine="{engine}",finished_reason="length"}} 2',
        )
    )
    assert gauges(text) == Gauges(7, None, 0.7)
    assert parse(text).values == {"requests": 6}


@pytest.mark.parametrize("name", ["a,b", "a}b", "{a", r"a\"b", r"C:\\", "a b 9", 'x",y="z', "é"])
def test_a_model_s_name_may_hold_anything(name):
    """It is a label's value; quotes and backslashes come escaped."""
    assert parse(f'vllm:generation_tokens_total{{engine="0",model_name="{name}"}} 12.0').values == {
        "generation_tokens": 12
    }


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "twelve", ""])
def test_what_is_no_number_counts_as_not_there(value):
    """An empty summary of the Prometheus client is NaN."""
    assert parse(f"vllm:generation_tokens_total{LABELS} {value}").values == {}


def test_a_stamp_behind_a_value_is_no_part_of_it():
    """The text format allows milliseconds there; labels may be missing, and lines end with CR LF."""
    assert parse("vllm:generation_tokens_total 12.0 1700000000000\r\n").values == {"generation_tokens": 12}


@given(st.text())
def test_any_text_can_be_read(text):
    """A proxy's error page, or half a page."""
    parse(text)
    gauges(f"vllm:num_requests_running{text}")


def test_a_repeat_is_the_difference_of_two_pages():
    """Means are those of the requests in between, not of all since the start."""
    before = Counters(
        {"generation_tokens": 100, "ttft_sum": 50, "ttft_count": 10, "itl_sum": 1, "itl_count": 10}
    )
    after = Counters(
        {"generation_tokens": 400, "ttft_sum": 53, "ttft_count": 12, "itl_sum": 2, "itl_count": 35}
    )
    found = delta(before, after, [])
    assert (found.generation_tokens, found.ttft_mean_s, found.itl_mean_ms) == (300, 1.5, 40)
    assert (found.queue_mean_s, found.preemptions, found.running_max, found.samples) == (None, None, None, 0)


def test_the_acceptance_length_is_that_of_the_repeat():
    """1 + accepted / drafts; without speculation there is none."""
    before, after = (
        Counters({"drafts": 10, "accepted_tokens": 5}),
        Counters({"drafts": 110, "accepted_tokens": 205}),
    )
    assert delta(before, after, []).acceptance_length == 3
    assert delta(after, after, []).acceptance_length is None


def test_hits_of_another_cache_are_hits():
    """A KV connector's are as good as the engine's own."""
    after = Counters({"prefix_queries": 100, "prefix_hits": 10, "external_hits": 20})
    assert delta(Counters({"prefix_queries": 50}), after, []).prefix_hits == 30


def test_a_counter_that_comes_up_later_began_at_zero():
    """Some clients show a label only after its first use."""
    assert (
        delta(
            Counters({"generation_tokens": 1}), Counters({"generation_tokens": 2, "preemptions": 3}), []
        ).preemptions
        == 3
    )


def test_counters_that_fall_are_a_restart():
    """Differences across it mean nothing: none is given."""
    found = delta(
        Counters({"generation_tokens": 100}), Counters({"generation_tokens": 40, "requests": 9}), []
    )
    assert found.restarted
    assert (found.generation_tokens, found.requests) == (None, None)


def test_gauges_are_shown_by_their_maxima():
    """And how often a request waited."""
    found = delta(None, None, [Gauges(3, 1, 0.2), Gauges(4, 0, 0.5), Gauges(2, 3, 0.1), Gauges(4, 0, 0.4)])
    assert (found.running_max, found.waiting_max, found.waiting_share, found.kv_usage_max) == (4, 3, 0.5, 0.5)
    assert (found.in_flight_max, found.samples) == (5, 4)


@pytest.mark.parametrize("pages", [(None, None), (Counters(), Counters()), (Counters({"requests": 1}), None)])
def test_a_server_that_counts_nothing_has_no_difference(pages):
    """Another server than vLLM, or one whose last page could not be read."""
    assert delta(*pages, [Gauges()]) is None
