"""Several results: side by side, or as a list. Pure."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timezone
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from orchestrator.errors import SparkDeployError
from orchestrator.ui.jsonl import to_line
from orchestrator.ui.printable import columns, one_line
from orchestrator.ui.report.table import aligned, number, percent, rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orchestrator.bench.compare import Comparison, Line
    from orchestrator.model.bench import Result
    from orchestrator.run.history import Run

COMPARISON = "spark-deploy/bench-comparison/v1"
KEPT = "spark-deploy/bench-kept/v1"
_HEADING = ("ID", "WHEN (UTC)", "DEPLOYMENT", "MODEL", "LEVELS", "TOK/S", "VERDICT")


def show_comparison(found: Comparison) -> str:
    """Give who is who, what differs, and a line per level and figure; a figure that rises is a `+`, good or bad."""
    letters = _letters(len(found.sides))
    heading = ("C", "figure", letters[0], *(name for letter in letters[1:] for name in (letter, "change")))
    return "\n".join([*_sides(found, letters), "", *aligned([heading, *map(_cells, found.lines)])]) + "\n"


def comparison_json(found: Comparison) -> str:
    return to_line({"schema": COMPARISON, "comparable": found.comparable, **asdict(found)})


def show_history(found: Iterable[tuple[Run, Result | SparkDeployError]]) -> str:
    """Give one line per result under a heading; "" without any."""
    listed = [_listed(run, result) for run, result in found]
    return "".join(f"{line}\n" for line in columns([_HEADING, *listed])) if listed else ""


def history_json(run: Run, result: Result | SparkDeployError) -> str:
    """One line of JSON, schema spark-deploy/bench-kept/v1."""
    about: dict[str, Any] = {"schema": KEPT, "id": run.id, "folder": str(run.results)}
    if isinstance(result, SparkDeployError):
        return to_line({**about, "problem": str(result)})
    levels = {row["level"]: row["aggregate"] if row["status"] == "ok" else None for row in rows(result)}
    return to_line(
        {
            **about,
            "at": result.started,
            "deployment": result.deployment.name,
            "release": result.deployment.release,
            "model": result.deployment.model,
            "aggregate_tok_s": levels,
            "verdict": _verdict(result),
            "finished": result.finished,
        }
    )


def _letters(count: int) -> list[str]:
    """A to Z, then numbers."""
    return [ascii_uppercase[k] if k < len(ascii_uppercase) else str(k + 1) for k in range(count)]


def _sides(found: Comparison, letters: list[str]) -> Iterator[str]:
    for letter, side in zip(letters, found.sides, strict=True):
        yield f"{letter}: {one_line(side.name)}" + (
            f" (run {side.run_id})" if side.run_id != side.name else ""
        )
        yield from (f"   NOT COMPARABLE with A: {one_line(text)}" for text in side.unlike)
        yield from (f"   differs from A: {one_line(text)}" for text in side.differs)


def _cells(line: Line) -> tuple[str, ...]:
    first, *others = line.values
    pairs = zip(others, line.changes[1:], strict=True)
    cells = (text for value, change in pairs for text in (number(value), percent(change, signed=True)))
    return (line.level, line.figure, number(first), *cells)


def _listed(run: Run, result: Result | SparkDeployError) -> tuple[str, ...]:
    if isinstance(result, SparkDeployError):
        return (run.id, "", run.deployment, "", "", "", result.message)
    d, at = result.deployment, datetime.fromtimestamp(result.started, timezone.utc)
    valid = [row for row in rows(result) if row["status"] == "ok"]
    best = f"{number(valid[-1]['aggregate'])} at {valid[-1]['level']}" if valid else ""
    levels = ",".join(level.level.name for level in result.levels)
    return (run.id, f"{at:%Y-%m-%d %H:%M}", d.name, d.model, levels, best, _verdict(result))


def _verdict(result: Result) -> str:
    if not result.finished:
        return "interrupted"
    if result.verdict is None:
        return "" if result.valid else "invalid"
    return f"{result.verdict.status} ({result.verdict.baseline})"
