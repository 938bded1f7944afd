"""Percentiles as numpy gives them, weights, and Student's t against its published table."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bench.estimate import estimate, spread, t_quantile
from orchestrator.model.bench import Estimate, Spread

# NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2: df, 0.95, 0.975
TABLE = [
    (1, 6.314, 12.706),
    (2, 2.920, 4.303),
    (3, 2.353, 3.182),
    (4, 2.132, 2.776),
    (5, 2.015, 2.571),
    (7, 1.895, 2.365),
    (10, 1.812, 2.228),
    (30, 1.697, 2.042),
    (100, 1.660, 1.984),
    (1_000_000, 1.645, 1.960),
]


@pytest.mark.parametrize(("df", "one", "two"), TABLE)
def test_t_is_that_of_the_table(df, one, two):
    """The verdict and every interval rest on it."""
    assert t_quantile(df, 0.95) == pytest.approx(one, abs=6e-4)
    assert t_quantile(df, 0.975) == pytest.approx(two, abs=6e-4)


def test_t_is_given_for_degrees_that_are_no_whole_number():
    """Welch's, for two groups of unlike spread; R: qt(0.95, 2.5)."""
    assert t_quantile(2, 0.95) > t_quantile(2.5, 0.95) > t_quantile(3, 0.95)
    assert t_quantile(2.5, 0.95) == pytest.approx(2.5582, abs=1e-3)


def test_an_estimate_is_the_mean_with_its_interval():
    """25, 26, 27: sd 1, t 4.303, so 26 ± 2.48."""
    found = estimate([25, 26, 27])
    assert (found.n, found.mean, found.sd) == (3, 26, 1)
    assert found.ci95 == pytest.approx(4.3027 / math.sqrt(3), abs=1e-3)


def test_one_repeat_has_no_interval():
    """None, not 0: it is not known, rather than exact."""
    assert estimate([26.0]) == Estimate(1, 26.0)


def test_no_repeat_has_no_estimate():
    """Whoever asks has to look first."""
    with pytest.raises(ValueError, match="no repeat"):
        estimate([])


@pytest.mark.parametrize(("percent", "needed"), [(50, 2), (90, 10), (95, 20), (99, 100)])
def test_a_percentile_needs_values_behind_it(percent, needed):
    """With fewer than 1 / (1 - p) values p99 is the maximum by another name."""
    name = f"p{percent}"
    assert getattr(spread(range(needed - 1)), name) is None
    assert getattr(spread(range(needed)), name) == pytest.approx((needed - 1) * percent / 100)


def test_nothing_has_no_spread():
    """Zero of everything would look like a fast server."""
    assert spread([]) == Spread()


def test_one_value_has_a_mean_and_no_deviation():
    """A level with one request."""
    assert spread([2.0]) == Spread(n=1, mean=2.0, minimum=2.0, maximum=2.0)


@given(st.lists(st.tuples(st.floats(0, 1e4), st.integers(1, 6)), min_size=1, max_size=80))
def test_a_weight_counts_as_so_many_values(pairs):
    """ITL is weighted by tokens: an event of three is three tokens."""
    values, weights = zip(*pairs, strict=True)
    weighted, repeated = spread(values, weights), spread([value for value, n in pairs for _ in range(n)])
    assert weighted.n == repeated.n == sum(weights)
    for name in ("mean", "sd", "minimum", "p50", "p90", "p95", "p99", "maximum"):
        one, other = getattr(weighted, name), getattr(repeated, name)
        assert one == (None if other is None else pytest.approx(other, rel=1e-9, abs=1e-6))


@given(st.lists(st.floats(0, 1e4), min_size=100, max_size=200))
def test_percentiles_are_those_of_the_standard_library(values):
    """Its inclusive method is numpy's default: what other tools report can be laid beside ours."""
    cuts, found = statistics.quantiles(values, n=100, method="inclusive"), spread(values)
    assert (found.p50, found.p90, found.p95, found.p99) == pytest.approx(
        (cuts[49], cuts[89], cuts[94], cuts[98])
    )
    assert found.sd == pytest.approx(statistics.stdev(values), abs=1e-6)
