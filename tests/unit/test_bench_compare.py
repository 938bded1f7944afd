"""Results side by side, and listed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.bench.compare import side_by_side
from orchestrator.errors import FileError
from orchestrator.run.history import Run
from orchestrator.ui.report.several import comparison_json, history_json, show_comparison, show_history
from tests.unit.bench_results import invalid_result, result


def changed(**about):
    """The reference, deployed otherwise, and 10 % slower at 16."""
    found = result()
    *levels, last = found.levels
    slower = {**last.summary, "aggregate_tok_s": replace(last.summary["aggregate_tok_s"], mean=129.1)}
    deployment = replace(found.deployment, **about)
    return replace(
        found, run_id="later", deployment=deployment, levels=(*levels, replace(last, summary=slower))
    )


def line(found, level, figure):
    return next(one for one in found.lines if (one.level, one.figure) == (level, figure))


def test_two_results_stand_beside_each_other(golden):
    """What differs between the deployments comes first: it may be the reason."""
    found = side_by_side(
        [("before", result()), ("after", changed(image="vllm:26.02", args=("--max-num-seqs=16",)))]
    )

    golden("bench/comparison.txt", show_comparison(found))


def test_a_change_is_told_against_the_first():
    """As a fraction of it: 129.1 for 143.4."""
    found = side_by_side([("before", result()), ("after", changed())])

    assert line(found, "16", "aggregate_tok_s").changes == (0.0, pytest.approx(129.1 / 143.43 - 1, abs=1e-4))


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (changed(root="org/other", model="other"), "another model"),
        (changed(quant="nvfp4"), "another quantisation"),
        (replace(result(), load=replace(result().load, output_tokens=100)), "other answers"),
        (replace(result(), definitions=2), "its figures are defined otherwise"),
    ],
)
def test_pears_get_no_change(other, says):
    """They are shown, and called what they are."""
    found = side_by_side([("apples", result()), ("pears", other)])

    assert not found.comparable
    assert says in found.sides[1].unlike[0]
    assert {one.changes[1] for one in found.lines} == {None}


def test_an_invalid_level_has_no_figures():
    """It would look good: it came from the cache."""
    found = side_by_side([("before", result()), ("after", invalid_result())])

    assert line(found, "8", "aggregate_tok_s").values[1] is None


def test_a_level_of_one_result_alone_is_shown():
    """With nothing to hold it against."""
    less = replace(result(), levels=result().levels[:2])

    assert line(side_by_side([("a", less), ("b", result())]), "4", "decode_tok_s").changes[1] is None


def test_a_comparison_is_one_line_of_json():
    """For scripts: whether it is one at all, and the figures."""
    about = json.loads(comparison_json(side_by_side([("a", result()), ("b", changed())])))

    assert (about["comparable"], [side["name"] for side in about["sides"]]) == (True, ["a", "b"])


def kept():
    runs = [Run(f"2026113{day}T210000-abc123", Path(f"/runs/{day}"), deployment="home") for day in range(4)]
    broken = FileError("result.json is not JSON")
    plain = replace(result(), verdict=None)
    return list(zip(runs, [result(), invalid_result(), replace(plain, finished=False), broken], strict=True))


def test_history_shows_what_is_kept(golden):
    """One line a result; one that is broken is there, too."""
    golden("bench/history.txt", show_history(kept()))


def test_history_without_a_result_is_empty():
    """The command then says so in words."""
    assert show_history([]) == ""


def test_history_as_json_has_throughput_by_level():
    """An INVALID one has none."""
    lines = [json.loads(history_json(*one)) for one in kept()]

    assert lines[0]["aggregate_tok_s"]["16"] == pytest.approx(143.4, abs=0.1)
    assert lines[1]["aggregate_tok_s"]["8"] is None
    assert lines[3]["problem"] == "result.json is not JSON"
