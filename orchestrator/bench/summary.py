"""The repeats of a level as one: means with their intervals, and the line of the table. Pure."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from orchestrator.bench.estimate import estimate
from orchestrator.model.bench import SUMMED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.model.bench import Estimate, LevelResult, Repeat


def figures(repeats: Sequence[Repeat]) -> dict[str, tuple[float, ...]]:
    """Give the values of the valid ones by the names in SUMMED; a name that one of them lacks is left out."""
    valid = [repeat for repeat in repeats if repeat.valid]
    found = {name: tuple(map(attrgetter(path), valid)) for name, path in SUMMED.items()}
    return {name: values for name, values in found.items() if values and None not in values}


def summed(repeats: Sequence[Repeat]) -> Mapping[str, Estimate]:
    return {name: estimate(values) for name, values in figures(repeats).items()}


def row(result: LevelResult) -> Mapping[str, str | float | None]:
    """
    Give one line of the table; its figures are None where there are none, and where the level is INVALID.

    *window* says what *aggregate* is taken over: the "steady" window, or the "run" where a repeat has no such window.
    """
    summary = result.summary if result.valid else {}
    window = "steady" if "steady_tok_s" in summary else "run"
    aggregate = summary.get("steady_tok_s" if window == "steady" else "aggregate_tok_s")
    means = {name: summary[path].mean if path in summary else None for name, path in _COLUMNS}
    return {
        "level": result.level.name,
        "window": window,
        "aggregate": aggregate.mean if aggregate else None,
        "aggregate_ci": aggregate.ci95 if aggregate else None,
        **means,
        "efficiency": result.limit.efficiency if result.limit and result.valid else None,
        "ok": sum(repeat.n_ok for repeat in result.repeats),
        "failed": sum(sum(repeat.failures.values()) for repeat in result.repeats),
        "status": "ok" if result.valid else "INVALID",
        "why": why(result),
    }


_COLUMNS = (
    ("user", "decode_tok_s"),
    ("ttft_mean", "ttft_mean_s"),
    ("ttft_p50", "ttft_p50_s"),
    ("ttft_p99", "ttft_p99_s"),
    ("itl_p50", "itl_p50_ms"),
    ("itl_p99", "itl_p99_ms"),
    ("e2e_mean", "e2e_mean_s"),
)


def why(result: LevelResult) -> str:
    """Give the first gate that a repeat did not pass; "" where the level is valid."""
    if not result.repeats:
        return "it was not run"
    failed = (
        gate.text for repeat in result.repeats for gate in repeat.gates if not gate.ok and not gate.warns
    )
    return next(failed, "")
