"""Repeats become one line: only valid ones count, and a level that is not valid shows why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.bench.summary import row, summed
from orchestrator.model.bench import Gate, Level, LevelResult, Limit, Repeat
from tests.unit.closed_loop import healthy

BAD = Gate(
    "prefix-hits", ok=False, text="60% of the prompt tokens came from the prefix cache, wanted 1 % or less"
)


def repeats(*rates: float, **change) -> list[Repeat]:
    return [replace(healthy(), aggregate_tok_s=rate, steady_tok_s=rate, **change) for rate in rates]


def level(found: list[Repeat], limit: Limit | None = None) -> LevelResult:
    return LevelResult(Level(4), tuple(found), summed(found), limit=limit)


def test_repeats_are_summed_up_with_an_interval():
    """The line shows ± for three repeats."""
    shown = row(level(repeats(140, 144, 148)))
    assert (shown["aggregate"], shown["window"], shown["status"], shown["why"]) == (144, "steady", "ok", "")
    assert shown["aggregate_ci"] == pytest.approx(9.94, abs=0.01)


def test_one_repeat_without_a_window_makes_it_the_run_s_rate():
    """Two kinds of rates have no mean."""
    found = [*repeats(140, 144), replace(healthy(), aggregate_tok_s=130, steady_tok_s=None)]
    shown = row(level(found))
    assert (shown["window"], shown["aggregate"]) == ("run", 138)


def test_a_repeat_that_is_not_valid_enters_no_mean():
    """And one is enough to hide the mean of the others: never a number that looks good."""
    found = [*repeats(140), *repeats(500, gates=(BAD,))]
    shown = row(level(found))
    assert summed(found)["steady_tok_s"].mean == 140
    assert (shown["aggregate"], shown["status"], shown["why"]) == (None, "INVALID", BAD.text)


def test_a_level_that_is_not_valid_at_all_has_no_figures():
    """Not even in small print."""
    shown = row(level(repeats(500, gates=(BAD,))))
    assert [shown[name] for name in ("aggregate", "user", "ttft_mean", "itl_p50", "e2e_mean")] == [None] * 5
    assert (shown["ok"], shown["status"]) == (16, "INVALID")


def test_a_gate_that_warns_is_no_reason():
    """A level through SSH is marked elsewhere."""
    shown = row(level(repeats(140, gates=(replace(BAD, warns=True),))))
    assert (shown["aggregate"], shown["status"], shown["why"]) == (140, "ok", "")


def test_a_level_that_was_not_run_is_not_valid():
    """No repeat, no figure, no exception."""
    shown = row(level([]))
    assert (shown["status"], shown["why"], shown["aggregate"]) == ("INVALID", "it was not run", None)


def test_percentiles_that_a_repeat_does_not_have_are_left_out():
    """16 requests have no p99 of TTFT."""
    shown = row(level(repeats(140)))
    assert (shown["ttft_p99"], shown["ttft_p50"]) == (None, 1.0)


def test_the_memory_limit_is_in_the_line():
    """The share of it that was reached."""
    limit = Limit(1e10, None, 54, 48, 54, efficiency=0.48)
    assert row(level(repeats(26), limit))["efficiency"] == 0.48
