"""How long a sweep is expected to take, and when the requests of an open loop are due."""

from __future__ import annotations

import pytest

from orchestrator.model.bench import Cold, Level, Load
from orchestrator.run.loaded import arrivals, title
from orchestrator.run.outlook import Outlook, alone_s, expected_s, planned

LOAD = Load(output_tokens=300)


@pytest.mark.parametrize(
    ("level", "load", "count"),
    [
        (Level(1), LOAD, 12),
        (Level(16), LOAD, 64),
        (Level(16), Load(requests=20), 20),
        (Level(16), Load(requests=12), 16),  # fewer would not fill it
        (Level(16), Load(duration_s=30), None),
        (Level(rate=0.5), LOAD, 30),
        (Level(rate=2), Load(duration_s=10), 20),
    ],
)
def test_a_level_has_four_requests_a_slot_unless_told_otherwise(
    level: Level, load: Load, count: int | None
) -> None:
    assert planned(level, load) == count


def test_arrivals_are_poisson_at_the_wanted_rate_and_the_same_every_time() -> None:
    due_s = arrivals(4, 4000, "0 4/s-0")

    assert due_s == arrivals(4, 4000, "0 4/s-0")
    assert list(due_s) == sorted(due_s)
    assert due_s[-1] == pytest.approx(1000, rel=0.05)


def test_a_request_alone_is_guessed_without_what_the_first_one_waited_for() -> None:
    """12 s of compilation are no part of the next request."""
    assert alone_s(Cold(ttft_s=12, e2e_s=23)) == 12
    assert alone_s(Cold(ttft_s=12, e2e_s=23, failure="disconnect")) is None


def test_more_at_once_takes_less_time_per_request_but_not_in_proportion() -> None:
    """12 requests one after the other, 12 s each; 64 at 16 at once take hardly longer, by the reference's curve."""
    alone = expected_s(Level(1), LOAD, 12, None)
    crowded = expected_s(Level(16), LOAD, 12, None)

    assert alone == pytest.approx(12 * 12, rel=0.06)  # and the warm-up
    assert 130 < crowded < 160


def test_a_duration_bounds_the_guess() -> None:
    assert expected_s(Level(1), Load(duration_s=30, repeats=3), 12, None) == pytest.approx(90, rel=0.01)


def test_what_is_left_is_scaled_by_what_was_seen() -> None:
    outlook = Outlook({"1": 10, "2": 20})
    outlook.finish("1", took_s=30)

    assert outlook.left_s() == 60
    assert outlook.left_s(elapsed_s=15) == 45
    assert outlook.left_s(elapsed_s=90) == 0


def test_a_level_taken_over_from_an_earlier_run_says_nothing_of_the_speed() -> None:
    outlook = Outlook({"1": 10, "2": 20})
    outlook.finish("1")

    assert outlook.left_s() == 20


def test_nothing_is_guessed_from_nothing() -> None:
    """The first request failed, and there is no baseline."""
    assert Outlook({"1": 0}).left_s() is None


def test_levels_have_names_in_words() -> None:
    assert [title(Level(16)), title(Level(rate=0.5))] == ["concurrency 16", "0.5 requests a second"]
