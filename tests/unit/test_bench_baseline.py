"""Baselines: the shipped ones, files, earlier runs; and what may not be compared with what."""

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.bench.baseline import Baseline, differences, from_result, refuse
from orchestrator.errors import FileError, ManyError, UsageError
from orchestrator.load.baseline import find_baseline, load_baselines, shipped_baselines, shipped_shapes
from orchestrator.model.bench import Level, Load
from tests.unit.benched import DEPLOYMENT, INVALID, MODEL, REFERENCE, level, repeat, result

MINE = """\
format: spark-deploy/baselines/v1
baselines:
- name: mine
  model: Qwen/Qwen3.5-122B-A10B-FP8
  levels: [1, 16]
  aggregate_tok_s: [[25.9, 26.1], 144]
  ttft_mean_s: [0.48, ~]
"""


def no_result(text):
    raise UsageError(f"no run has an id that begins with {text!r}")


def found(name, cwd=Path(), result_of=no_result):
    return find_baseline(name, cwd, result_of)


def test_the_reference_is_the_published_curve():
    """As the reference deployment had it, its slow first request apart."""
    reference = found("reference")

    assert {name: row["aggregate_tok_s"][0] for name, row in reference.rows.items()} == {
        "1": 26, "2": 41, "4": 71, "8": 94, "16": 144,
    }  # fmt: skip
    assert [row["decode_tok_s"][0] for row in reference.rows.values()] == [27, 21, 19, 12, 10]
    assert [row["ttft_mean_s"][0] for row in reference.rows.values()] == [0.48, 0.86, 1.48, 2.29, 3.2]
    assert (reference.cold_ttft_s, reference.metric) == (12, "wall")


def test_all_published_rows_are_there_each_with_its_source():
    """71, and two of context; a number without a source is a rumour."""
    judged = [baseline for baseline in shipped_baselines() if not baseline.context]

    assert sum(len(baseline.rows) for baseline in judged) == 71
    assert sum(len(baseline.rows) for baseline in shipped_baselines()) == 73
    assert all(baseline.source for baseline in shipped_baselines())
    assert len({baseline.name for baseline in shipped_baselines()}) == len(shipped_baselines())


def test_a_decode_rate_of_all_requests_is_shared_out():
    """Nothing of a decode-only source may stand beside a wall throughput."""
    rows = found("kubis-gpt-oss-120b").rows

    assert rows["8"] == {"decode_tok_s": (231.0 / 8,)}
    decodes = [baseline for baseline in shipped_baselines() if baseline.metric == "decode"]
    assert not any("aggregate_tok_s" in row for baseline in decodes for row in baseline.rows.values())


def test_every_shape_says_where_it_comes_from():
    """And what of it is assumed."""
    assert all(shape.source for shape in shipped_shapes().values())
    assert all(shape.active <= shape.parameters for shape in shipped_shapes().values())


def test_a_name_that_is_nearly_one_is_corrected():
    """A typing mistake costs no sweep."""
    with pytest.raises(UsageError) as caught:
        found("referense")

    assert caught.value.hint == "did you mean reference?"


def test_a_context_row_is_no_baseline():
    """Four other GPUs."""
    with pytest.raises(UsageError, match="it is there for context alone"):
        refuse(found("context-4x-rtx-pro-6000"), DEPLOYMENT, Load())


def test_a_file_of_the_same_shape_is_a_baseline(tmp_path):
    """A cell with several values is several repeats; ~ is no figure."""
    (tmp_path / "mine.yaml").write_text(MINE)

    assert found("mine.yaml", tmp_path).rows == {
        "1": {"aggregate_tok_s": (25.9, 26.1), "ttft_mean_s": (0.48,)},
        "16": {"aggregate_tok_s": (144,)},
    }


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("levels: [1, 16]", "levels: [0, 16]", 5, "baselines[0].levels[0] is 0"),
        ("[0.48, ~]", "[0.48]", 7, "ttft_mean_s has 1 cells"),
        ("[25.9, 26.1]", "[25.9, fast]", 6, "baselines[0].aggregate_tok_s is a list"),
        ("[25.9, 26.1]", "-26", 6, "baselines[0].aggregate_tok_s is a list"),
        ("aggregate_tok_s", "agregate_tok_s", 6, "baselines[0].agregate_tok_s is not a known key"),
        ("  model:", "  metric: guess\n  model:", 4, "baselines[0].metric is guess"),
        ("format: spark-deploy/baselines/v1", "format: v0", 1, "format is v0"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_file_is_told_with_its_line(tmp_path, old, new, line, message):
    """As of every other file."""
    path = tmp_path / "mine.yaml"
    path.write_text(MINE.replace(old, new))

    with pytest.raises(FileError) as caught:
        load_baselines(path)

    assert (caught.value.message, caught.value.at) == (message, f"{path}:{line}")


def test_a_curve_without_figures_is_a_mistake(tmp_path):
    """Nothing could be judged by it."""
    path = tmp_path / "mine.yaml"
    path.write_text(MINE[: MINE.index("  aggregate")])

    with pytest.raises(FileError, match="mine has no figures"):
        load_baselines(path)


def test_a_file_has_one_baseline(tmp_path):
    """Which of two is meant could not be said."""
    (tmp_path / "two.yaml").write_text(MINE + MINE[MINE.index("- name") :].replace("mine", "other"))

    with pytest.raises(FileError, match="holds 2 baselines"):
        found("two.yaml", tmp_path)


@pytest.mark.parametrize("named", ["20261201T120000-abcdef", "2026", "last", "before/", "a/result.json"])
def test_an_earlier_result_is_found_by_run_folder_and_file(named):
    """All by the one finder of results."""
    baseline = found(named, result_of=lambda _text: result())

    assert baseline.model == MODEL
    assert baseline.rows["16"]["decode_tok_s"] == (10,)


def test_a_result_gives_each_valid_repeat_and_no_invalid_level():
    """The noise of the baseline is part of the verdict."""
    bad = level(8, repeat(94, gates=(INVALID,)))
    baseline = from_result(result(level(1, repeat(26), repeat(27)), bad))

    assert baseline.rows == {"1": {"aggregate_tok_s": (26, 27)}}
    assert (baseline.prompt_tokens, baseline.output_tokens, baseline.definitions) == (512, 300, 1)


def test_a_result_without_a_valid_level_is_no_baseline():
    """Nothing in it can be believed."""
    with pytest.raises(UsageError, match="none of its levels is valid"):
        from_result(result(level(8, repeat(94, gates=(INVALID,)))))


EARLIER = from_result(result())


def test_the_same_deployment_and_load_are_not_refused():
    """By name and by result."""
    refuse(REFERENCE, DEPLOYMENT, Load(), [Level(1), Level(3)])
    refuse(EARLIER, replace(DEPLOYMENT, image="other", tensor_parallel=1), Load())


@pytest.mark.parametrize(
    ("baseline", "changes", "load", "found_text", "wanted"),
    [
        (REFERENCE, {"root": "openai/gpt-oss-120b"}, Load(), "openai/gpt-oss-120b", MODEL),
        (REFERENCE, {"quant": "int8"}, Load(), "int8", "fp8"),
        (EARLIER, {}, Load(prompt_tokens=128), "128 tokens", "512 tokens"),
        (EARLIER, {}, Load(output_tokens=128), "128 tokens", "300 tokens"),
        (EARLIER, {}, Load(endpoint="chat"), "chat", "completions"),
        (replace(EARLIER, definitions=99), {}, Load(), "1", "99"),
        (replace(EARLIER, model="qwen"), {}, Load(), MODEL, "qwen"),
    ],
    ids=[
        "model",
        "quantisation",
        "prompts",
        "answers",
        "endpoint",
        "definitions",
        "an alias of another model",
    ],
)
def test_pears_are_refused_before_anything_is_sent(baseline, changes, load, found_text, wanted):
    """With what is here, and what the baseline has."""
    with pytest.raises(UsageError) as caught:
        refuse(baseline, replace(DEPLOYMENT, **changes), load)

    assert (caught.value.found, caught.value.wanted) == (found_text, wanted)


def test_all_that_differs_is_told_at_once():
    """No second try for the second mistake."""
    with pytest.raises(ManyError) as caught:
        refuse(EARLIER, replace(DEPLOYMENT, quant="nvfp4"), Load(prompt_tokens=1), [Level(1)])

    assert len(caught.value.errors) == 2


def test_a_baseline_with_none_of_the_levels_is_refused():
    """There would be nothing to judge."""
    with pytest.raises(UsageError, match="it has none of the levels") as caught:
        refuse(REFERENCE, DEPLOYMENT, Load(), [Level(3), Level(rate=0.5)])

    assert (caught.value.found, caught.value.wanted) == ("3, 0.5/s", "1, 2, 4, 8, 16")


def test_a_baseline_with_none_of_the_figures_is_refused():
    """A sweep of an hour would end in "nothing could be judged"."""
    with pytest.raises(UsageError, match="it has none of the figures") as caught:
        refuse(REFERENCE, DEPLOYMENT, Load(), fail_on=["itl_p99_ms"])

    assert caught.value.found == "--fail-on itl_p99_ms"


def test_what_nobody_knows_is_not_different():
    """A server by its URL tells no quantisation, and its alias may be the model's name."""
    unknown = replace(DEPLOYMENT, root="", model=MODEL.lower(), quant="", tensor_parallel=None)

    refuse(REFERENCE, unknown, Load(prompt_tokens=77))


def test_what_was_not_stated_is_named():
    """Reading "pass", one should know of it."""
    named = differences(REFERENCE, replace(DEPLOYMENT, args=("--speculative-config={}",)))

    assert named == (
        "it ran on vLLM 0.17",
        "speculation none -> some",
        "its prompt length, answer length are not stated",
        REFERENCE.caveat,
    )


def test_a_baseline_needs_little():
    """Model and figures; all else is unknown until it is said."""
    refuse(Baseline("x", MODEL, {"1": {"aggregate_tok_s": (26,)}}), DEPLOYMENT, Load())
