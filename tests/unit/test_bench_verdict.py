"""The verdict: how often it is right, and what it is about."""

import math
import random
import re
from dataclasses import replace
from functools import cache

import pytest

from orchestrator.bench.baseline import from_result
from orchestrator.bench.verdict import FLOORS, JUDGED, MAX_REPEATS, compare, decide, undecided
from orchestrator.model.bench import SUMMED
from tests.unit.benched import DEPLOYMENT, INVALID, REFERENCE, curve, level, repeat, result
from tests.unit.test_docs import REPO

TRIALS = 1500
# Noise (CV) and true change in per cent; then, of 8,000 trials, per cent that passed and failed, and repeats.
RATES = {
    (1, 0): (100, 0, 3.0),
    (1, -3): (89.8, 0.7, 4.0),
    (1, -5): (8.7, 64.8, 4.7),
    (1, -8): (0, 100, 3.0),
    (2, 0): (97.1, 0.1, 3.5),
    (2, -3): (48.8, 15.7, 5.4),
    (2, -5): (9.6, 63.3, 4.8),
    (2, -8): (0.2, 99.1, 3.1),
    (4, 0): (61.7, 5.8, 5.3),
    (4, -3): (26.4, 27.9, 5.9),
    (4, -5): (9.0, 54.4, 5.5),
    (4, -8): (1.6, 86.8, 4.1),
}


@cache
def rates(noise, change):
    """Percentages of (pass, fail), and the mean number of repeats: 3 of the baseline, 3 to 8 of the new."""
    chance = random.Random(f"{noise} {change}")  # noqa: S311
    outcomes = [_one(chance, noise / 100, change / 100) for _ in range(TRIALS)]
    shares = [100 * sum(status == wanted for status, _ in outcomes) / TRIALS for wanted in ("pass", "fail")]
    return (*shares, sum(count for _, count in outcomes) / TRIALS)


def _one(chance, noise, change):
    def value(change):
        return 100 * math.exp(chance.gauss(change, noise))

    old, new = [value(0) for _ in range(3)], [value(change) for _ in range(3)]
    while (status := decide(new, old, floor=0.05).status) == "inconclusive" and len(new) < MAX_REPEATS:
        new.append(value(change))
    return status, len(new)


@pytest.mark.parametrize(("noise", "change"), RATES)
def test_the_verdict_errs_as_often_as_documented(noise, change):
    """
    An alarm that is false one time in twenty is turned off; one that misses 8 % is not worth having.
    """
    passed, failed, repeats = RATES[noise, change]

    found = rates(noise, change)

    assert found[0] == pytest.approx(passed, abs=4)
    assert found[1] == pytest.approx(failed, abs=0.6 if failed < 1 else 4)
    assert found[2] == pytest.approx(repeats, abs=0.2)


def test_noise_of_4_per_cent_leaves_a_third_undecided():
    """Above 3 % a baseline wants more than three repeats."""
    passed, failed, _ = rates(4, 0)

    assert 100 - passed - failed == pytest.approx(32, abs=4)


def test_the_documented_rates_are_those_of_the_test():
    """docs/roofline.md has the same table."""
    row = r"^\| (\d) % \| (-?\d) % \| ([\d.]+) % \| ([\d.]+) % \| [\d.]+ % \| ([\d.]+) \|$"
    found = re.findall(row, (REPO / "docs/roofline.md").read_text(), re.MULTILINE)

    assert {(int(noise), int(change)): tuple(map(float, of)) for noise, change, *of in found} == RATES


def test_a_latency_that_falls_is_better():
    """Negative is worse, of every figure."""
    assert decide([0.9, 0.9], [1.0, 1.0], floor=0.1, higher_is_better=False).change == pytest.approx(1 / 9)
    assert decide([90, 90], [100, 100], floor=0.1).change == pytest.approx(-0.1)


def test_repeats_that_agree_by_chance_do_not_make_it_certain():
    """Three equal values have no noise; no machine is like that."""
    decision = decide([100, 100, 100], [100, 100, 100], floor=0.05)

    assert decision.low == pytest.approx(-0.0087, abs=0.0001)


def test_one_repeat_against_one_number_decides_nothing():
    """There is no noise to compare the change with: repeat it."""
    decision = decide([50], [100], floor=0.15)

    assert (decision.status, decision.low, decision.high) == ("inconclusive", None, None)


def test_every_figure_that_is_summed_up_has_a_floor():
    """Each may be named by --fail-on."""
    assert set(FLOORS) == set(SUMMED)
    assert set(JUDGED) <= set(SUMMED)


def three(concurrency, aggregate, *, decode=10.0, ttft_s=3.2):
    """Three repeats with 1 % between them."""
    return level(concurrency, *(repeat(aggregate * x, decode * x, ttft_s * x) for x in (0.99, 1, 1.01)))


def test_the_reference_curve_passes_the_reference():
    """Measured three times."""
    rows = REFERENCE.rows.items()
    levels = [
        three(
            int(name), row["aggregate_tok_s"][0], decode=row["decode_tok_s"][0], ttft_s=row["ttft_mean_s"][0]
        )
        for name, row in rows
    ]

    verdict = compare(levels, REFERENCE)

    assert verdict.status == "pass"
    assert verdict.text.startswith(
        "Not worse than reference in any of 10 figures, the least good of which is "
    )


def test_a_fifth_less_is_a_regression():
    """Of one figure at one level; the text names it."""
    verdict = compare([three(16, 115)], REFERENCE)

    assert verdict.status == "regression"
    assert verdict.text == ("Worse than reference: aggregate_tok_s at 16: 115 for 144 (-20.1 %, floor 15 %).")


def test_a_published_number_fails_on_no_time_to_first_token():
    """Its prompts, its network and its warm-up are not ours."""
    verdict = compare([three(16, 144, ttft_s=6.4)], REFERENCE)

    assert verdict.status == "pass"
    assert [one.status for one in verdict.metrics if one.metric == "ttft_mean_s"] == ["shown"]


def test_an_earlier_run_fails_on_the_time_to_first_token():
    """That was measured in the same way."""
    verdict = compare([three(16, 144, ttft_s=6.4)], from_result(result(three(16, 144))))

    assert verdict.status == "regression"
    assert "ttft_mean_s at 16" in verdict.text


def test_only_what_fail_on_names_can_fail():
    """The rest is shown."""
    verdict = compare([three(16, 100)], REFERENCE, fail_on=("decode_tok_s",))

    assert verdict.status == "pass"
    assert {one.metric: one.status for one in verdict.metrics} == {
        "aggregate_tok_s": "shown",
        "decode_tok_s": "pass",
        "ttft_mean_s": "shown",
    }


def test_a_level_that_the_baseline_lacks_is_named_and_not_judged():
    """A pass says nothing of it."""
    verdict = compare([three(16, 144), three(32, 1)], REFERENCE)

    assert verdict.status == "pass"
    assert "Not judged: 32, which reference does not have." in verdict.text


def test_an_invalid_level_makes_the_verdict_invalid():
    """Also where its figures look good."""
    bad = level(16, repeat(150, 12, 3.0), repeat(150, 12, 3.0, gates=(INVALID,)))

    verdict = compare([bad], REFERENCE)

    assert (verdict.status, verdict.text) == ("invalid", "Not valid at 16: nothing follows from it.")
    assert undecided(verdict, [bad]) == ()


def test_decode_rates_are_shown_and_never_judged():
    """llama-benchy leaves the wait for the first token out: its throughput is up to 38 % higher for the same run."""
    verdict = compare([three(16, 144)], replace(REFERENCE, metric="decode"))

    assert verdict.status == "inconclusive"
    assert verdict.text.startswith("Nothing could be judged by reference.")
    assert undecided(verdict) == ()


def test_a_noisy_level_is_repeated_until_there_are_eight():
    """And then it is inconclusive."""
    values = (110, 150, 120, 160)
    few = level(16, *(repeat(value, 10.0) for value in values))
    full = level(16, *(repeat(value, 10.0) for value in values * 2))

    assert undecided(compare([few], REFERENCE), [few]) == ("16",)
    assert undecided(compare([full], REFERENCE), [full]) == ()
    assert compare([full], REFERENCE).status == "inconclusive"


def test_a_regression_that_is_sure_asks_for_no_more_repeats():
    """Of whatever else is open."""
    levels = [three(8, 40, decode=12), level(16, repeat(144, 10.0))]

    assert undecided(compare(levels, REFERENCE), levels) == ()


def test_what_else_differs_is_named():
    """An image is what one compares, so it is not refused."""
    before = from_result(result(three(16, 144)))
    now = replace(DEPLOYMENT, image="vllm:0.18", args=(*DEPLOYMENT.args, "--enforce-eager"))

    text = compare([three(16, 144)], before, deployment=now).text

    assert text.endswith("Bear in mind: image vllm:0.17 -> vllm:0.18; with --enforce-eager.")


def test_nothing_measured_is_nothing_passed():
    """An interrupted sweep."""
    assert compare([], REFERENCE).status == "inconclusive"


def test_one_run_of_the_whole_curve_is_repeated_at_every_level():
    """--repeats 1 beside a baseline of single numbers."""
    levels = curve()

    assert undecided(compare(levels, REFERENCE), levels) == ("1", "2", "4", "8", "16")
