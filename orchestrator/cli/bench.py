"""`spark-deploy bench`: how fast a deployment is, and whether that is good."""

from __future__ import annotations

import math
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.options import (
    inventory_option,
    load_pair,
    output_option,
    served_recipe_option,
    text_option,
)
from orchestrator.errors import Exit, StepFailedError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator.bench.baseline import Baseline
    from orchestrator.cli.journaled import Run
    from orchestrator.client.server import Server
    from orchestrator.model.inventory import Inventory
    from orchestrator.model.recipe import Recipe
    from orchestrator.run.bench import Asked
    from orchestrator.run.place import Place
    from orchestrator.run.results import Folder
    from orchestrator.run.session import Session
    from orchestrator.run.status import Look


class Positive(click.FloatRange):
    """Above 0, and a number: `nan` is in every range."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> float:
        number: float = super().convert(value, param, context)
        if not math.isfinite(number):
            self.fail(f"{value} is not a number above 0.", param, context)
        return number


COUNT = click.IntRange(min=1)
ABOVE_0 = Positive()


@click.group(invoke_without_command=True)
@inventory_option
@served_recipe_option
@click.option("--url", metavar="URL", help="Measure any OpenAI-compatible server, not a deployment.")
@click.option("--model", metavar="NAME", help="With --url: which model. Default: the only one it serves.")
@click.option(
    "--api-key-env",
    metavar="VAR",
    help="With --url: the variable that holds its API key. Default: SPARK_DEPLOY_API_KEY, VLLM_API_KEY.",
)
@click.option(
    "--ca-file", metavar="FILE", help="With --url: the certificates (PEM) that https is checked by."
)
@click.option("--insecure", is_flag=True, help="With --url: check no certificate.")
@click.option("--levels", metavar="C,C,…", help="Requests in flight, level by level.  [default: 1,2,4,8,16]")
@click.option("--rate", metavar="R,R,…", help="Instead: so many requests arrive per second, at random.")
@click.option("--input-tokens", type=COUNT, default=512, show_default=True, help="Of every prompt.")
@click.option("--output-tokens", type=COUNT, default=300, show_default=True, help="Of every answer.")
@click.option("--requests", type=COUNT, help="Per level and repeat.  [default: 4 C, at least 12]")
@click.option(
    "--duration",
    type=ABOVE_0,
    metavar="S",
    help="Instead of --requests, or as their limit: seconds in which a level sends.",
)
@click.option("--repeats", type=COUNT, help="Of every level.  [default: 1, or 3 with --baseline]")
@click.option("--seed", type=int, default=0, show_default=True, help="Of prompts and arrivals.")
@click.option("--chat", is_flag=True, help="Ask /v1/chat/completions, not /v1/completions.")
@click.option(
    "--slo",
    metavar="NAME=S,…",
    help="Shows how many requests kept to these seconds: ttft=1.0,tpot=0.1,e2e=20.",
)
@click.option(
    "--baseline",
    metavar="NAME|FILE|ID",
    help="Judge by a shipped baseline (`reference`: Qwen3.5-122B-A10B-FP8), a file, an earlier run of the model.",
)
@click.option(
    "--fail-on",
    metavar="METRIC,…",
    help="What the verdict may fail on, e.g. aggregate_tok_s.  [default: throughput, decode rate, TTFT, p99s]",
)
@click.option(
    "--bandwidth",
    type=ABOVE_0,
    default=273,
    show_default=True,
    metavar="GB/s",
    help="Of one node's memory, for the memory model.",
)
@click.option("--out", metavar="DIR", help="Where the result goes. Default: the run's own folder.")
@click.option(
    "--resume",
    is_flag=True,
    help="Go on where the same command was interrupted: its whole levels are taken over.",
)
@output_option
@click.pass_context
def bench(context: click.Context, /, **given: Any) -> int:
    """
    Measure the running deployment, or any server by --url, and judge it.

    Level by level, from one request in flight to many: throughput, latency, whether the measurement is valid, how
    near the memory limit it is; a table, and report.html. It wants the server to itself: ten minutes for the
    reference recipe on a pair, three times as long with --baseline. Exit code 0 passed (or valid, without a
    baseline), 7 slower than the baseline, 8 too noisy to say, 9 not valid, 5 unreachable or died. docs/bench.md
    defines every figure.

    \b
    Example:
      spark-deploy bench -i inventories/home.yaml --baseline reference
      spark-deploy bench --url http://10.0.0.7:8000 --levels 1,4,16
    """  # noqa: D301
    if context.invoked_subcommand is not None:
        return Exit.DONE
    from orchestrator.cli.asked import refuse_url_with_inventory, server_of

    refuse_url_with_inventory(given)
    asked, out = _asked(given), _out(given["out"])
    if given["url"] is not None:
        return _measure_url(server_of(given, os.environ), asked, given["output"], out)
    return measure_deployment(load_pair(given["inventory"], given["recipe"]), asked, given["output"], out)


@bench.command()
@click.argument("results", metavar="A B…", nargs=-1, required=True)
@text_option
def compare(results: tuple[str, ...], output: str) -> int:
    """
    Show results side by side, the first one as the measure.

    Each is a folder, a result.json, the id of a run, or `last`. Exit code 1: one of them is of another model, load
    or quantisation, and is not compared.

    \b
    Example:
      spark-deploy bench compare 20261130T210000-1a2b3c last
    """  # noqa: D301
    from orchestrator.bench.compare import side_by_side
    from orchestrator.run.results import find_result
    from orchestrator.ui.report.several import comparison_json, show_comparison

    if len(results) == 1:
        raise UsageError("one result alone cannot be compared", found=results[0], wanted="two or more")
    found = side_by_side([(name, find_result(os.environ, name)) for name in results])
    click.echo(comparison_json(found) if output == "json" else show_comparison(found), nl=False)
    return Exit.DONE if found.comparable else Exit.FAILED


@bench.command()
@text_option
def history(output: str) -> None:
    """
    List the results that are kept, the newest first.

    \b
    Example:
      spark-deploy bench history
    """  # noqa: D301
    from orchestrator.run.results import kept_results
    from orchestrator.ui.report.several import history_json, show_history

    found = list(kept_results(os.environ))
    text = "".join(history_json(*one) for one in found) if output == "json" else show_history(found)
    click.echo(text, nl=False)
    if not found:
        click.echo("no results yet", err=True)


def measure_deployment(
    pair: tuple[Inventory, Recipe], asked: Asked, output: str, out: Path | None = None
) -> Exit:
    """
    Measure what runs on the nodes.

    Raises:
        StepFailedError: it does not serve.
    """
    from orchestrator.cli.journaled import journaled
    from orchestrator.run.place import place_of_deployment
    from orchestrator.run.status import look
    from orchestrator.ui.bench import bench_screen

    with journaled("bench", pair, output, screens=bench_screen) as run, run.session() as (session, problem):
        if problem:
            raise problem
        seen = look(*pair, session.hosts, None)
        _refuse_unless_serving(pair[0], seen)
        with place_of_deployment(session, seen.facts, _key(run, session)) as place:
            return _bench(run, place, asked, out)


def _measure_url(server: Server, asked: Asked, output: str, out: Path | None) -> Exit:
    from orchestrator.cli.journaled import journaled_elsewhere
    from orchestrator.run.place import place_of_url
    from orchestrator.ui.bench import bench_screen

    secrets = {"key": server.key} if server.key else {}
    with journaled_elsewhere("bench", server.authority, output, secrets, bench_screen) as run:
        return _bench(run, place_of_url(server), asked, out)


def _bench(run: Run, place: Place, asked: Asked, out: Path | None) -> Exit:
    from orchestrator.run.bench import Call, bench, exit_code
    from orchestrator.run.results import Folder
    from orchestrator.ui.report import files
    from orchestrator.ui.report.text import show_result
    from orchestrator.ui.streams import columns_of

    folder = Folder(out or run.journal.folder / "bench", files)
    if out:
        run.journal.describe(out=str(out))
    call = Call(run.journal.id, tuple(sys.argv[1:]), run.tell, folder, _earlier(folder, out))
    result = bench(place, asked, call)
    run.journal.describe(release=result.deployment.release)
    return run.finish(show_result(result, folder.path, columns_of(sys.stdout)), exit_code(result))


def defaults() -> Asked:
    """What `bench` does when it is told nothing."""
    from orchestrator.cli.asked import LEVELS, concurrencies
    from orchestrator.model.bench import Level, Load
    from orchestrator.run.bench import Asked

    return Asked(Load(), tuple(map(Level, concurrencies(LEVELS))))


def _asked(given: Mapping[str, Any]) -> Asked:
    """Raises UsageError, or FileError: the baseline's file is wrong."""
    from orchestrator.cli.asked import levels_of, load_of, metrics, refuse_too_many
    from orchestrator.run.bench import Asked

    load, levels = load_of(given), levels_of(given)
    refuse_too_many(levels, load)
    return Asked(
        load,
        levels,
        given["model"] or "",
        _baseline(given["baseline"]),
        metrics(given["fail_on"] or ""),
        given["bandwidth"],
        resume=given["resume"],
    )


def _baseline(named: str | None) -> Baseline | None:
    from orchestrator.load.baseline import find_baseline
    from orchestrator.run.results import find_result

    if named == "":  # --baseline "$UNSET" would pass whatever is measured
        raise UsageError("--baseline is empty", wanted="a shipped baseline, a file, or an earlier run")
    return find_baseline(named, Path(), partial(find_result, os.environ)) if named else None


def _out(text: str | None) -> Path | None:
    """Raises UsageError: it cannot be a folder of ours. Nothing is made yet."""
    if text is None:
        return None
    from orchestrator.run.results import unwritable

    out = Path(os.path.expanduser(text)).absolute()  # noqa: PTH111  # expanduser() raises for ~nobody
    if why := unwritable(out) if text else "it is empty":
        raise UsageError(f"--out {text}: {why}", wanted="a folder to write results into")
    return out


def _earlier(folder: Folder, out: Path | None) -> Iterator[Folder]:
    """
    Where --resume looks: in the folder that is named, else in those of interrupted runs, the newest first.

    A sweep that came to its end is taken over by none: its figures would be told as those of today.
    """
    from orchestrator.run.history import list_runs
    from orchestrator.run.results import Folder

    if out:
        yield folder
        return
    ended = (Exit.DONE, Exit.REGRESSION, Exit.INCONCLUSIVE, Exit.INVALID)
    runs = (run for run in list_runs(os.environ) if run.command == "bench")
    yield from (Folder(run.results) for run in runs if run.exit_code not in ended)


def _refuse_unless_serving(inventory: Inventory, seen: Look) -> None:
    from orchestrator.cli.status import status_rows
    from orchestrator.ui.status import serving, show_status

    rows = status_rows(inventory, seen)
    if serving(rows) and seen.api_answers:
        return
    found = show_status(rows) if not serving(rows) else "its API does not answer /health with 200"
    raise StepFailedError(
        f"{inventory.name} does not serve: there is nothing to measure",
        found="\n         ".join(found.splitlines()),
        hint="spark-deploy up",
    )


def _key(run: Run, session: Session) -> str:
    """The API key that the head was given. All of its secrets are hidden from now on."""
    from orchestrator.run.look import found_secrets
    from orchestrator.run.secrets import parse_secrets

    head = session.inventory.head.name
    secrets = parse_secrets(found_secrets(session.inventory, {head: session.head})[head])
    run.journal.hide(secrets.values())
    return secrets.get("VLLM_API_KEY", "")
