"""What the options of `bench` mean, and which are refused before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from orchestrator.cli.asked import concurrencies, metrics, objectives, rates, server_of
from orchestrator.cli.main import cli
from orchestrator.errors import FileError, UsageError

ANYWHERE = "http://127.0.0.1:9"  # discard: nobody listens


def refusal(*arguments: str) -> UsageError:
    """With a URL that nobody listens at: the mistake is found before."""
    raised = CliRunner().invoke(cli, ["bench", *arguments]).exception
    assert isinstance(raised, UsageError), repr(raised)
    return raised


def of_url(**given: Any) -> dict[str, Any]:
    return {"url": "http://127.0.0.1:8000", "api_key_env": None, "ca_file": None, "insecure": False, **given}


def test_levels_ascend_whatever_their_order() -> None:
    """Each level finds the server warmed by the smaller ones."""
    assert concurrencies("4,1,2") == (1, 2, 4)
    assert rates("2,0.5") == (0.5, 2)


@pytest.mark.parametrize("text", ["0", "-1", "1,x", "", "1,,2", "1.5", "2000", "99999999999", "\uff11"])
def test_what_is_no_concurrency_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        concurrencies(text)

    assert caught.value.wanted == "whole numbers from 1 to 1024, with commas between them"


@pytest.mark.parametrize(
    ("text", "hint"),
    [("1 2 4", "1,2,4"), ("1;8", "1,8"), ("0,1,4", "1,4"), ("8,2000", "8"), ("2000", None), ("x", None)],
)
def test_a_near_miss_names_the_levels_that_were_meant(text: str, hint: str | None) -> None:
    with pytest.raises(UsageError) as caught:
        concurrencies(text)

    assert caught.value.hint == (hint and f"--levels {hint}")


def test_a_level_given_twice_is_refused() -> None:
    """Two results of one name would be one file."""
    with pytest.raises(UsageError) as caught:
        concurrencies("1,8,8")

    assert (caught.value.message, caught.value.hint) == (
        "--levels 1,8,8: 8 is given twice",
        "--levels 1,8",
    )


@pytest.mark.parametrize("text", ["0", "-1", "x", "nan", "inf", "1e9", ""])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        rates(text)


def test_objectives_are_seconds() -> None:
    assert objectives("ttft=1.0,tpot=0.1") == {"ttft": 1, "tpot": 0.1}


@pytest.mark.parametrize("text", ["ttft", "ttft=", "ttft=x", "ttft=-1", "ttft=1,ttft=2", "tfft=1", "=1", ","])
def test_what_is_no_objective_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        objectives(text)


def test_a_misspelled_objective_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        objectives("tfft=1")

    assert caught.value.hint == "did you mean ttft?"


def test_a_misspelled_metric_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        metrics("agregate_tok_s")

    assert caught.value.hint == "did you mean aggregate_tok_s?"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--url", ANYWHERE, "--levels", "1", "--rate", "1"),
        ("--url", ANYWHERE, "--inventory", "home.yaml"),
        ("--url", ANYWHERE, "--recipe", "tiny"),
        ("--url", "ftp://127.0.0.1"),
        ("--url", "127.0.0.1:8000"),
        ("--url", ""),
        ("--url", ANYWHERE, "--ca-file", "ca.pem", "--insecure"),
        ("--url", ANYWHERE, "--api-key-env", "NOT_SET_ANYWHERE"),
        ("--url", ANYWHERE, "--baseline", "no-such-baseline"),
        ("--url", ANYWHERE, "--fail-on", "speed"),
        ("--url", ANYWHERE, "--out", "/dev/null"),
        ("--url", ANYWHERE, "--out", "/dev/null/results"),
        ("--model", "tiny"),
        ("--insecure",),
    ],
    ids=" ".join,
)
def test_options_that_make_no_sense_are_refused(arguments: tuple[str, ...]) -> None:
    assert refusal(*arguments).message


@pytest.mark.parametrize(
    "option", ["--input-tokens", "--output-tokens", "--requests", "--repeats", "--duration"]
)
@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_amounts_are_above_zero(option: str, value: str) -> None:
    shown = CliRunner().invoke(cli, ["bench", "--url", ANYWHERE, option, value])

    assert (shown.exit_code, f"Invalid value for '{option}'" in shown.stderr) == (2, True)


def test_a_key_is_taken_from_the_environment_alone() -> None:
    """On a command line everybody on the machine can read it."""
    assert server_of(of_url(), {"VLLM_API_KEY": "v"}).key == "v"
    assert server_of(of_url(api_key_env="MINE"), {"VLLM_API_KEY": "v", "MINE": "m"}).key == "m"


def test_the_key_of_another_service_is_not_sent() -> None:
    """$OPENAI_API_KEY belongs to a server that is seldom the one under test."""
    assert server_of(of_url(), {"OPENAI_API_KEY": "secret"}).key == ""


def test_a_key_given_for_its_variable_is_not_shown() -> None:
    with pytest.raises(UsageError) as caught:
        server_of(of_url(api_key_env="sk-very-secret"), {})

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("option", ["--duration", "--bandwidth"])
@pytest.mark.parametrize("text", ["nan", "inf"])
def test_what_is_no_number_is_refused_though_float_reads_it(option: str, text: str) -> None:
    """`nan` lies in every range, ended in a traceback, and made a result that nothing reads."""
    ended = CliRunner().invoke(cli, ["bench", "--url", ANYWHERE, option, text])

    assert ended.exit_code == 2
    assert f"{text} is not a number above 0" in ended.output


def test_a_rate_of_a_billion_is_refused_before_it_fills_the_memory() -> None:
    """Arrivals of a minute are drawn before its clock starts."""
    refused = refusal("--url", ANYWHERE, "--rate", "999999999")

    assert refused.wanted == "at most 100000"


def test_an_empty_baseline_is_refused() -> None:
    """`--baseline "$BEFORE"` with a variable that is not set would pass whatever is measured."""
    assert refusal("--url", ANYWHERE, "--baseline", "").message == "--baseline is empty"


@pytest.mark.parametrize(
    ("name", "message"),
    [("", "it is empty"), ("dangling", "is not a folder"), ("a" * 300, "File name too long")],
    ids=["empty", "dangling", "too long"],
)
def test_an_out_that_cannot_be_written_is_refused_before_an_hour_of_measuring(
    tmp_path: Path, name: str, message: str
) -> None:
    """An empty one is the working directory, and a link to nowhere is found when the first level is done."""
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")

    assert message in refusal("--url", ANYWHERE, "--out", str(tmp_path / name) if name else "").message


def test_a_baseline_whose_name_is_too_long_is_not_there() -> None:
    """As any other that is not."""
    raised = CliRunner().invoke(cli, ["bench", "--url", ANYWHERE, "--baseline", "a" * 300 + "/x"]).exception

    assert isinstance(raised, FileError)
    assert "cannot be read" in raised.message


@pytest.mark.parametrize("text", ["1e3", "0x10"])
def test_pieces_of_another_number_are_no_hint(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        concurrencies(text)

    assert caught.value.hint is None
