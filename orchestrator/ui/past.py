"""Runs of the past as text and as JSON. Pure but for the list of a run's files."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

from orchestrator.run.history import SCHEMA
from orchestrator.ui.jsonl import to_line
from orchestrator.ui.printable import columns, duration, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.run.history import Run


def show_runs(runs: Iterable[Run], timezone: tzinfo | None = None) -> str:
    """Give one line per run under a heading; "" without any run."""
    heading = ("ID", "WHEN", "COMMAND", "DEPLOYMENT", "OUTCOME", "TOOK")
    rows = [_cells(run, timezone) for run in runs]
    return "".join(f"{line}\n" for line in columns([heading, *rows])) if rows else ""


def show_head(run: Run, timezone: tzinfo | None = None) -> str:
    facts = {
        "run": run.id,
        "when": f"{_when(run, timezone)}, took {_took(run)}",
        "command": " ".join(run.argv) or run.command,
        "deployment": run.deployment,
        "release": run.release,
        "version": run.version,
        "outcome": run.outcome,
    }
    return "".join(f"{name:<11} {one_line(text)}\n" for name, text in facts.items() if text) + "\n"


def show_files(run: Run) -> str:
    files = "".join(f"  {one_line(path)}\n" for path in run.files())
    return f"\nfiles in {one_line(str(run.folder))}\n{files}"


def run_json(run: Run) -> str:
    """One line of JSON, schema spark-deploy/run/v1, without the events."""
    return to_line(
        {
            "schema": SCHEMA,
            "id": run.id,
            "at": run.at,
            "command": run.command,
            "argv": list(run.argv),
            "deployment": run.deployment,
            "release": run.release,
            "version": run.version,
            "outcome": run.outcome,
            "exit_code": run.exit_code,
            "seconds": run.seconds,
            "folder": str(run.folder),
            "files": list(run.files()),
        }
    )


def _cells(run: Run, timezone: tzinfo | None) -> tuple[str, ...]:
    return (run.id, _when(run, timezone), run.command, run.deployment, run.outcome, _took(run))


def _when(run: Run, timezone: tzinfo | None) -> str:
    if not run.at:
        return "-"
    at = datetime.fromtimestamp(run.at, timezone)
    return (at if timezone else at.astimezone()).strftime("%Y-%m-%d %H:%M:%S %z")


def _took(run: Run) -> str:
    return "-" if run.seconds is None else duration(run.seconds)
