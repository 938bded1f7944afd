"""The memory model: its table for the reference deployment, and what it says of published curves."""

from dataclasses import replace

import pytest

from orchestrator.bench.roofline import limit
from orchestrator.load.baseline import shipped_baselines, shipped_shapes
from orchestrator.model.bench import Level, Shape
from tests.unit.benched import SHAPE

DENSE = Shape(name="dense", parameters=27e9, active=27e9, layers=64, dense_bytes=1)
# Concurrency, experts, GB per step, the model's tok/s, the same with all-reduces, the hard limit, the observed
# aggregate and decode rate, and both in per cent of the model.
TABLE = (
    (1, 8.0, 10.0, 54.6, 48.3, 54.6, 26, 27, 48, 49),
    (2, 15.8, 13.5, 80.9, 73.7, 109, 41, 21, 51, 52),
    (4, 30.5, 20.2, 108, 102, 218, 71, 19, 66, 70),
    (8, 57.4, 32.3, 135, 130, 437, 94, 12, 70, 71),
    (16, 102, 52.4, 167, 163, 874, 144, 10, 86, 96),
)


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"C={row[0]}")
def test_the_reference_curve_has_these_limits(row):
    """
    So the curve's shape, 5.5 times the throughput at 16, is mostly the traffic of experts.
    """
    concurrency, experts, gigabytes, model, reduced, hard, aggregate, decode, efficiency, decoding = row

    found = limit(SHAPE, Level(concurrency), nodes=2, aggregate_tok_s=aggregate, decode_tok_s=decode)

    assert found.unique_experts == pytest.approx(experts, rel=0.005)
    assert found.bytes_per_step / 1e9 == pytest.approx(gigabytes, rel=0.005)
    assert found.model_tok_s == pytest.approx(model, rel=0.005)
    assert found.with_all_reduce_tok_s == pytest.approx(reduced, rel=0.005)
    assert found.hard_tok_s == pytest.approx(hard, rel=0.005)
    assert 100 * found.efficiency == pytest.approx(efficiency, abs=0.6)
    assert 100 * found.decode_efficiency == pytest.approx(decoding, abs=0.6)


@pytest.mark.parametrize(("concurrency", "percent"), [(1, 43), (8, 80), (16, 101), (32, 109)])
def test_the_published_curve_of_gpt_oss_goes_beyond_the_model(concurrency, percent):
    """
    Requests share experts: the model is no limit, and clipping to 100 % would hide that.
    """
    published = next(one for one in shipped_baselines() if one.name == "kubis-gpt-oss-120b")
    (decode,) = published.rows[str(concurrency)]["decode_tok_s"]

    found = limit(shipped_shapes()["openai/gpt-oss-120b"], Level(concurrency), nodes=2, decode_tok_s=decode)

    assert 100 * found.decode_efficiency == pytest.approx(percent, abs=0.6)
    assert (found.implied_experts is not None) == (percent > 100)


def test_more_than_the_model_names_the_experts_that_would_explain_it():
    """Fewer than expected, and with them the model gives the rate that was seen."""
    found = limit(SHAPE, Level(16), nodes=2, aggregate_tok_s=200)
    experts = found.implied_experts
    expert_bytes = (SHAPE.parameters - SHAPE.active) / (256 - 8)

    assert 8 < experts < found.unique_experts
    assert found.bytes_per_step - (found.unique_experts - experts) * expert_bytes == pytest.approx(
        found.bytes_per_step * found.model_tok_s / 200
    )


def test_a_dense_model_is_read_once_per_step_whatever_the_concurrency():
    """And has no experts to tell of."""
    found = limit(DENSE, Level(8), nodes=2, aggregate_tok_s=500)

    assert found.bytes_per_step == 27e9
    assert found.model_tok_s == found.hard_tok_s == pytest.approx(8 * 2 * 273 / 27)
    assert found.unique_experts is found.implied_experts is None


def test_one_node_reads_alone_and_reduces_nothing():
    """Two nodes halve the time, and pay for all-reduces."""
    found = limit(DENSE, Level(1), nodes=1)

    assert found.model_tok_s == found.with_all_reduce_tok_s == pytest.approx(273 / 27)


def test_a_measured_bandwidth_scales_the_limit():
    """273 GB/s is a peak."""
    assert limit(DENSE, Level(1), bandwidth_gb_s=136.5).model_tok_s == pytest.approx(273 / 27 / 2)


def test_the_cache_of_every_sequence_is_read_in_every_step():
    """Long contexts are slower."""
    found = limit(replace(DENSE, kv_bytes_token=65536), Level(4), context_tokens=1000, drafts=3)

    assert found.bytes_per_step == 27e9 + 4 * 1000 * 65536


def test_speculation_verifies_more_positions_and_yields_more_tokens():
    """Its drafts touch experts of their own, so 3 accepted tokens are not 3 times as fast."""
    plain = limit(SHAPE, Level(1), nodes=2)
    drafting = limit(SHAPE, Level(1), nodes=2, acceptance_length=3, drafts=3)

    assert drafting.unique_experts == pytest.approx(limit(SHAPE, Level(4)).unique_experts)
    assert drafting.model_tok_s == pytest.approx(
        3 * plain.model_tok_s * plain.bytes_per_step / drafting.bytes_per_step
    )


def test_an_open_loop_has_no_limit():
    """Its steps have no one size."""
    assert limit(SHAPE, Level(rate=0.5)) is None
