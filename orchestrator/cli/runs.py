"""`spark-deploy runs`: what was done, and how it went."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import text_option
from orchestrator.errors import Exit

if TYPE_CHECKING:
    from orchestrator.run.history import Run


@click.group(invoke_without_command=True)
@text_option
@click.pass_context
def runs(context: click.Context, output: str) -> int:
    """
    List the runs of the past, the newest first.

    Every command that changes a node, and `bench`, keeps a journal on this machine: the plan, the rendered files,
    the events, and the logs of all nodes when something failed. The last 50 are kept.

    \b
    Example:
      spark-deploy runs
    """  # noqa: D301 - click wants the backspace itself
    if context.invoked_subcommand is None:
        from orchestrator.run.history import list_runs
        from orchestrator.ui.past import run_json, show_runs

        found = list_runs(os.environ)
        text = "".join(map(run_json, found)) if output == "json" else show_runs(found)
        click.echo(text, nl=False)
        if not found:
            click.echo("no runs yet", err=True)
        if any(run.closed for run in found):
            click.echo("Some runs cannot be read: those of another user, as after a `sudo`?", err=True)
            return Exit.FAILED
    return Exit.DONE


@runs.command()
@click.argument("run_id", metavar="ID")
@text_option
def show(run_id: str, output: str) -> None:
    """
    Replay one run: its events with their times, then the files it kept.

    ID may be shortened as long as it fits one run only; `last` is the newest.

    \b
    Example:
      spark-deploy runs show 20261130T2100
    """  # noqa: D301 - click wants the backspace itself
    from orchestrator.run.history import load_run

    _show(load_run(os.environ, run_id), output)


def _show(run: Run, output: str) -> None:
    from orchestrator.ui.jsonl import jsonl
    from orchestrator.ui.past import run_json, show_files, show_head
    from orchestrator.ui.plain import plain

    machine = output == "json"
    click.echo(run_json(run) if machine else show_head(run), nl=False)
    sink = jsonl(sys.stdout) if machine else plain(sys.stdout, replay=True)
    for event in run.events:
        sink(event)
    click.echo("" if machine else show_files(run), nl=False)
