"""`spark-deploy bench --url`, as an operator types it, against the server that tells the truth."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pytest

from orchestrator.client.server import parse_url
from orchestrator.errors import InterruptedRunError
from orchestrator.model.bench import Level, Load, Result
from orchestrator.run.bench import Asked, Call, bench
from orchestrator.run.place import place_of_url
from orchestrator.run.results import Folder
from tests.remote.conftest import free_port
from tests.truth.client import Truth

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = {"result.json", "requests.jsonl", "result.csv", "report.md", "report.html"}
# A sweep of seconds, slow enough for a busy machine: a client that is late by half a token's time makes a level INVALID.
SMALL = ("--levels", "1,2", "--input-tokens", "48", "--output-tokens", "4", "--requests", "4")
CALM = {"ttft": 0.5, "itl": 0.04}  # a pause of this machine is then no twentieth of a level
LOADED = 3  # requests for fewer tokens are questions about the server, not the load
ALL = 1 + (1 + 4) + (2 + 4)  # the first request; a warm-up wave and four requests at 1, the same at 2
IN_LEVEL_2 = 1 + (1 + 4) + 2 + 1  # the number of a request there, from 0


BASELINE = """
format: spark-deploy/baselines/v1
baselines:
- {name: mine, model: gt-model, metric: decode, levels: [2], decode_tok_s: [9]}
"""


@dataclass(frozen=True)
class Operator:
    home: Path

    @property
    def out(self) -> Path:
        return self.home / "out"

    def bench(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        """`spark-deploy bench` with *words*, whatever its exit code."""
        return self.run("bench", *words, **env)

    def run(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "orchestrator", *words],
            env=self._environment(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    @contextmanager
    def told(self, *words: str) -> Iterator[tuple[subprocess.Popen[str], Iterator[dict[str, Any]]]]:
        """The same while it runs, and its events one by one."""
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator", "bench", *words, "--output", "json"],
            env=self._environment({}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                yield process, map(json.loads, lines(process.stdout))
            finally:
                process.kill()

    def result(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.out / "result.json").read_text())
        return loaded

    def _environment(self, extra: dict[str, str]) -> dict[str, str]:
        kept = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[2])}
        return {**kept, "HOME": str(self.home), "LANG": "C.UTF-8", **extra}


def lines(stream: IO[str] | None) -> Iterator[str]:
    assert stream
    yield from iter(stream.readline, "")


def concurrencies(result: dict[str, Any]) -> list[int]:
    return [level["level"]["concurrency"] for level in result["levels"]]


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    return Operator(tmp_path)


@pytest.fixture
def small(truth: Truth, operator: Operator) -> tuple[str, ...]:
    """The words of a sweep of seconds on a server that is fast."""
    truth.config(**CALM)
    return ("--url", truth.url, "--out", str(operator.out), *SMALL)


# --- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words", "code", "message"),
    [
        ({}, ("--model", "gt-modle"), 2, "the model gt-modle is not served"),
        ({"key": "right"}, (), 2, "the server wants an API key"),
        ({"max_model_len": 51}, (), 2, "48 tokens in and 4 out are more than gt-model holds"),
        ({"prefix": "/llm"}, (), 2, "this is no OpenAI-compatible API"),
        ({}, ("--baseline", "reference"), 2, "gt-model"),
    ],
    ids=["model", "key", "length", "no API", "baseline of another model"],
)
def test_what_does_not_fit_the_server_is_refused_before_a_token_is_generated(
    truth: Truth,
    operator: Operator,
    options: dict[str, Any],
    words: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    """Nothing is left either: no folder, no half of a result."""
    url = truth.url
    truth.config(**options)

    ended = operator.bench("--url", url, "--out", str(operator.out), *SMALL, *words)

    assert (ended.returncode, message in ended.stderr, ended.stdout) == (code, True, ""), ended.stderr
    assert (truth.requests(), operator.out.exists()) == ([], False)


def test_a_wrong_key_is_refused_and_not_shown(truth: Truth, operator: Operator) -> None:
    truth.config(key="right")

    ended = operator.bench("--url", truth.url, *SMALL, SPARK_DEPLOY_API_KEY="very-wrong")

    assert (ended.returncode, "the server refuses the API key" in ended.stderr) == (2, True), ended.stderr
    assert "very-wrong" not in ended.stderr


def test_a_server_that_is_not_there_is_unreachable(operator: Operator) -> None:
    ended = operator.bench("--url", f"http://127.0.0.1:{free_port()}", "--out", str(operator.out), *SMALL)

    assert (ended.returncode, "Connection refused" in ended.stderr) == (5, True), ended.stderr
    assert not operator.out.exists()


def test_a_certificate_that_nobody_vouches_for_is_refused(operator: Operator) -> None:
    with Truth(tls=True) as truth:
        ended = operator.bench("--url", truth.url, *SMALL)

    assert (ended.returncode, "certificate" in ended.stderr) == (5, True), ended.stderr


# --- a sweep -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Swept:
    operator: Operator
    events: list[dict[str, Any]]
    bodies: list[dict[str, Any]]


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    """One sweep for several claims; the server's first request takes a second more."""
    operator = Operator(tmp_path_factory.mktemp("swept"))
    with Truth(cold={"n": 1, "ttft": 2}, **CALM) as truth:
        with operator.told("--url", truth.url, "--out", str(operator.out), *SMALL) as (process, events):
            told = list(events)
            assert process.wait(20) == 0, told
        return Swept(operator, told, truth.bodies())


def test_a_sweep_leaves_five_files_and_says_where(swept: Swept) -> None:
    out = swept.operator.out

    assert {path.name for path in out.iterdir() if path.is_file()} == FILES
    assert f"results: {out}" in swept.events[-1]["text"]
    assert concurrencies(swept.operator.result()) == [1, 2]


def test_the_first_request_is_in_no_mean(swept: Swept) -> None:
    """What compiles once would else be charged to the first level, and to that alone."""
    result = swept.operator.result()
    first = result["levels"][0]["repeats"][0]

    assert (result["cold"]["ttft_s"] > 2, first["ttft_s"]["maximum"] < 2) == (True, True)
    assert [level["repeats"][0]["n_ok"] for level in result["levels"]] == [4, 4]


def test_the_expected_time_is_told_before_the_first_level(swept: Swept) -> None:
    told = [event["text"] for event in swept.events if event["kind"] in ("note", "step-started")]

    assert [text.partition(":")[0] for text in told[-3:]] == ["expected", "concurrency 1", "concurrency 2"]


def test_the_only_model_is_taken_and_said(swept: Swept) -> None:
    assert "gt-model at http://127.0.0.1" in swept.events[1]["text"]


def test_no_prompt_is_sent_twice(swept: Swept) -> None:
    """A prefix cache would make the second one free."""
    prompts = [json.dumps(body["prompt"]) for body in swept.bodies if body["max_tokens"] >= LOADED]

    assert len(prompts) == len(set(prompts)) == ALL


def test_without_out_the_result_lies_in_the_runs_own_folder(truth: Truth, operator: Operator) -> None:
    truth.config(**CALM)

    ended = operator.bench("--url", truth.url, *SMALL)

    (result,) = (operator.home / ".local/state/spark-deploy/runs").glob("*/bench/result.json")
    assert str(result.parent) in ended.stdout
    listed = operator.run("runs").stdout
    assert ("bench" in listed, f"127.0.0.1:{truth.port}" in listed) == (True, True)


def test_the_key_opens_the_server_and_is_written_nowhere(
    truth: Truth, operator: Operator, small: tuple[str, ...]
) -> None:
    truth.config(key="very-secret-key")

    ended = operator.bench(*small, "--api-key-env", "MINE", MINE="very-secret-key")

    assert ended.returncode == 0, ended.stderr
    written = b"".join(path.read_bytes() for path in operator.home.rglob("*") if path.is_file())
    assert b"very-secret-key" not in written + (ended.stdout + ended.stderr).encode()


def test_https_with_its_own_authority_is_measured(operator: Operator) -> None:
    with Truth(tls=True, **CALM) as truth:
        ended = operator.bench(
            "--url", truth.url, "--ca-file", truth.ca_file, "--out", str(operator.out), *SMALL
        )

    assert ended.returncode in (0, 9), (
        ended.stderr
    )  # 9: without the kernel's stamps a busy machine is too late
    assert [level["repeats"][0]["n_ok"] for level in operator.result()["levels"]] == [4, 4]


@pytest.mark.parametrize(
    "words", [("--chat",), ("--slo", "ttft=1,tpot=0.1"), ("--seed", "7"), ("--duration", "1")], ids=" ".join
)
def test_each_kind_of_load_is_measured(
    operator: Operator, small: tuple[str, ...], words: tuple[str, ...]
) -> None:
    ended = operator.bench(*small, *words)

    assert ended.returncode == 0, ended.stderr


def test_requests_that_arrive_by_themselves_are_measured(truth: Truth, operator: Operator) -> None:
    truth.config(**CALM)
    words = ("--url", truth.url, "--out", str(operator.out), *SMALL[2:], "--rate", "2")

    ended = operator.bench(*words)

    assert ended.returncode == 0, ended.stderr
    assert operator.result()["levels"][0]["level"]["rate"] == 2


def test_a_plain_server_is_measured_and_what_it_lacks_is_said(
    truth: Truth, operator: Operator, small: tuple[str, ...]
) -> None:
    """No vLLM: no tokenizer, no metrics, no usage in its streams, and it refuses fields that it does not know."""
    missing = ["tokenize", "metrics", "version", "token_ids", "usage", "continuous_usage", "return_token_ids"]
    truth.config(without=missing, reject=["cache_salt", "min_tokens", "ignore_eos", "return_token_ids"])

    ended = operator.bench(*small)

    assert ended.returncode == 0, ended.stderr
    assert "the server has no /tokenize" in ended.stderr
    assert len(operator.result()["fallbacks"]) == 5


def test_a_server_that_takes_ignore_eos_and_ends_early_is_measured_and_said(
    truth: Truth, operator: Operator, small: tuple[str, ...]
) -> None:
    """Many gateways ignore what they do not know: every answer would else be a failure."""
    truth.config(without=["ignore_eos", "min_tokens"], eos_after=3)

    ended = operator.bench(*small, "--levels", "1")

    assert (ended.returncode, "does not keep to them: answers end early" in ended.stderr) == (0, True), (
        ended.stderr
    )
    assert operator.result()["levels"][0]["repeats"][0]["output_tokens"] == 4 * 3


def test_a_result_names_the_endpoint_that_was_really_asked(truth: Truth, operator: Operator) -> None:
    """Completions and chats are not compared with each other."""
    truth.config(**CALM, without=["completions"])
    operator.bench("--url", truth.url, "--out", str(operator.out), *SMALL, "--levels", "1")

    assert operator.result()["load"]["endpoint"] == "chat"


# --- interrupted -------------------------------------------------------------------------------------


def until(events: Iterator[dict[str, Any]], step: str) -> None:
    assert any(event["kind"] == "step-started" and event["step"] == step for event in events)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_run_that_is_ended_in_its_second_level_keeps_the_first(
    operator: Operator, small: tuple[str, ...], sent: int, code: int
) -> None:
    """And nothing else: what lies there is whole, and --resume measures only what is missing."""
    with operator.told(*small) as (process, events):
        until(events, "2")
        process.send_signal(sent)
        assert process.wait(20) == code

    for path in operator.out.rglob("*.json"):
        json.loads(path.read_text())
    with operator.told(*small, "--resume") as (process, events):
        started = [event["step"] for event in events if event["kind"] == "step-started"]
        assert process.wait(20) == 0
    assert started == ["2"]
    assert concurrencies(operator.result()) == [1, 2]


def test_an_interrupt_says_what_is_kept_and_how_to_go_on(operator: Operator, small: tuple[str, ...]) -> None:
    with operator.told(*small) as (process, events):
        until(events, "2")
        process.send_signal(signal.SIGINT)
        told = [event["text"] for event in events if event["kind"] == "error"]

    assert ("--resume" in told[0], str(operator.out) in told[0]) == (True, True)
    assert (operator.result()["finished"], concurrencies(operator.result())) == (False, [1])


def test_resume_finds_the_interrupted_run_by_itself(truth: Truth, operator: Operator) -> None:
    truth.config(**CALM)
    words = ("--url", truth.url, *SMALL)
    with operator.told(*words) as (process, events):
        until(events, "2")
        process.send_signal(signal.SIGINT)

    with operator.told(*words, "--resume") as (_, events):
        started = [event["step"] for event in events if event["kind"] == "step-started"]

    assert started == ["2"]


def test_resume_takes_nothing_from_a_sweep_that_came_to_its_end(truth: Truth, operator: Operator) -> None:
    """Its figures would be told as those of today."""
    truth.config(**CALM)
    words = ("--url", truth.url, *SMALL, "--levels", "1")
    operator.bench(*words)

    with operator.told(*words, "--resume") as (_, events):
        started = [event["step"] for event in events if event["kind"] == "step-started"]

    assert started == ["1"]


def test_a_result_is_not_overwritten(operator: Operator, small: tuple[str, ...]) -> None:
    """Nor does --resume mix two loads in one folder."""
    operator.bench(*small, "--levels", "1")
    again = operator.bench(*small)
    mixed = operator.bench(*small, "--output-tokens", "5", "--resume")

    assert (again.returncode, "holds a result already" in again.stderr) == (2, True), again.stderr
    assert (mixed.returncode, "of something else" in mixed.stderr) == (2, True), mixed.stderr
    assert concurrencies(operator.result()) == [1]


def test_a_server_that_dies_is_named_with_its_level(
    truth: Truth, operator: Operator, small: tuple[str, ...]
) -> None:
    """Exit code 5, and no figures of the level in which it died."""
    truth.config(faults=[{"kind": "die", "only": [IN_LEVEL_2], "at": 2}], faults_from=LOADED)

    ended = operator.bench(*small)

    assert (ended.returncode, "the server was lost at concurrency 2" in ended.stderr) == (5, True), (
        ended.stderr
    )
    assert (operator.result()["finished"], concurrencies(operator.result())) == (False, [1])


# --- judged ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "code"), [(0.08, 0.04, 0), (0.04, 0.08, 7)], ids=["faster", "slower"]
)
def test_a_server_is_judged_by_an_earlier_result(
    truth: Truth, operator: Operator, before: float, after: float, code: int
) -> None:
    words = ("--url", truth.url, *SMALL, "--levels", "2", "--fail-on", "decode_tok_s,aggregate_tok_s")
    truth.config(itl=before)
    earlier = operator.home / "earlier"
    operator.bench(*words, "--out", str(earlier), "--repeats", "2")
    truth.config(itl=after)

    ended = operator.bench(*words, "--baseline", str(earlier), "--repeats", "2")

    assert ended.returncode == code, ended.stdout + ended.stderr


def test_three_repeats_are_made_where_there_is_a_baseline(truth: Truth, operator: Operator) -> None:
    """One alone says nothing of the noise. Figures that are shown and not judged decide nothing: exit code 8."""
    truth.config(**CALM)
    (operator.home / "mine.yaml").write_text(BASELINE)
    words = ("--url", truth.url, *SMALL, "--levels", "2", "--out", str(operator.out))

    ended = operator.bench(*words, "--baseline", str(operator.home / "mine.yaml"))

    assert ended.returncode == 8, ended.stdout + ended.stderr
    assert len(operator.result()["levels"][0]["repeats"]) == 3


@pytest.mark.parametrize(
    "options",
    [
        {"prefix_hits": 0.5},
        {"preemptions": 1},
        {"faults": [{"kind": "disconnect", "only": [IN_LEVEL_2], "at": 2}], "faults_from": LOADED},
    ],
    ids=["prefix hits", "preemptions", "a broken stream"],
)
def test_a_measurement_that_cannot_be_trusted_says_so(
    truth: Truth, operator: Operator, small: tuple[str, ...], options: dict[str, Any]
) -> None:
    """Exit code 9: never a number that looks good."""
    truth.config(**options)

    ended = operator.bench(*small)

    assert (ended.returncode, "INVALID" in ended.stderr) == (9, True), ended.stderr


# --- results of the past -----------------------------------------------------------------------------


def test_results_are_compared_side_by_side(swept: Swept) -> None:
    out = str(swept.operator.out)

    compared = swept.operator.bench("compare", out, f"{out}/result.json")

    assert (compared.returncode, "+0.0 %" in compared.stdout) == (0, True), compared.stdout + compared.stderr


def test_apples_and_pears_are_not_compared(swept: Swept, tmp_path: Path) -> None:
    """A script that asks is told, too: no change beside the figures, and exit code 1."""
    other = json.loads((swept.operator.out / "result.json").read_text())
    other["deployment"] |= {"model": "another", "root": "another"}
    (tmp_path / "result.json").write_text(json.dumps(other))

    compared = swept.operator.bench("compare", str(swept.operator.out), str(tmp_path))

    assert (compared.returncode, "another model" in compared.stdout) == (1, True), (
        compared.stdout + compared.stderr
    )


def test_a_result_that_is_not_there_is_named(swept: Swept) -> None:
    for name, code in (("nowhere/at/all", 3), ("1999", 2)):
        compared = swept.operator.bench("compare", str(swept.operator.out), name)

        assert (compared.returncode, name in compared.stderr) == (code, True), compared.stderr


def test_history_lists_results_wherever_they_were_put(truth: Truth, operator: Operator) -> None:
    truth.config(**CALM)
    operator.bench("--url", truth.url, *SMALL, "--levels", "1")
    operator.bench("--url", truth.url, *SMALL, "--levels", "1", "--out", str(operator.out))

    listed = operator.bench("history")

    assert (listed.returncode, listed.stdout.count("gt-model")) == (0, 2), listed.stdout + listed.stderr


def test_ctrl_c_while_the_reports_are_written_leaves_the_levels_and_says_where(
    truth: Truth, tmp_path: Path
) -> None:
    """It said that nothing was changed, and an hour's levels had no result."""
    presses = iter([KeyboardInterrupt])

    def reports(_: Result) -> dict[str, str]:
        for press in presses:
            raise press
        return {}

    asked = Asked(Load(prompt_tokens=48, output_tokens=4, requests=2), (Level(1),))
    call = Call("run", (), lambda *_, **__: None, Folder(tmp_path / "out", reports))
    with pytest.raises(InterruptedRunError) as caught:
        bench(place_of_url(parse_url(truth.url)), asked, call)

    assert (tmp_path / "out" / "result.json").exists()
    assert "--resume goes on" in (caught.value.hint or "")
