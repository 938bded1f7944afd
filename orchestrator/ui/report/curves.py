"""Throughput, rate and TTFT over the levels, with what they are held against. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.bench.summary import row
from orchestrator.ui.printable import one_line
from orchestrator.ui.report.chart import Chart, Point, Series
from orchestrator.ui.report.table import number

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orchestrator.model.bench import LevelResult, Limit, Result

HARD = "hard limit"  # need not fit: it may be six times what was measured
ROOM = 1.12


def curves(result: Result) -> tuple[Chart, ...]:
    """Leave out a chart of which nothing was measured."""
    return tuple(found for made in (_throughput, _rate, _ttft) if (found := made(_Curves(result))))


@dataclass(frozen=True)
class _Curves:
    """An INVALID level has its place on the axis, and no point."""

    result: Result

    def of_row(self, name: str) -> tuple[Point, ...]:
        return self._points(lambda level: row(level)[name])

    def of_limit(self, value: Callable[[LevelResult, Limit], float]) -> tuple[Point, ...]:
        """A limit does not depend on what was measured."""
        levels = self.result.levels
        return tuple((_x(level), value(level, level.limit)) for level in levels if level.limit)

    def baseline(self, metric: str) -> Series:
        verdict = self.result.verdict
        if verdict is None:
            return Series("", ())
        old = {one.level: one.baseline for one in verdict.metrics if one.metric == metric}
        name = one_line(verdict.baseline)
        shown = name if len(name) <= 24 else f"{name[:23]}…"
        return Series(f"baseline: {shown}", self._points(lambda level: old.get(level.level.name)), 1)

    def errors(self) -> tuple[float | None, ...]:
        found = [row(level) for level in self.result.levels if level.valid]
        return tuple(float(one["aggregate_ci"] or 0) for one in found if one["aggregate"] is not None)

    def chart(self, title: str, *series: Series, log: bool = False) -> Chart | None:
        drawn = tuple(one for one in series if one.points)
        tops = [value for one in drawn if one.name != HARD for _, value in one.points]
        if not tops or not series[0].points:
            return None
        levels = self.result.levels
        open_loop = any(level.level.rate is not None for level in levels)
        axis = "requests per second (log scale)" if open_loop else "C, requests in flight (log scale)"
        at = tuple((_x(level), level.level.name) for level in levels)
        return Chart(title, drawn, at, axis, max(tops), log, tuple(_cut(drawn, ROOM * max(tops))))

    def _points(self, value: Callable[[LevelResult], float | str | None]) -> tuple[Point, ...]:
        found = [(_x(level), value(level)) for level in self.result.levels if level.valid]
        return tuple((x, float(y)) for x, y in found if y is not None)


def _x(level: LevelResult) -> float:
    return level.level.concurrency if level.level.rate is None else level.level.rate


def _cut(series: Sequence[Series], top: float) -> Iterator[str]:
    for one in series:
        above = [(x, value) for x, value in one.points if value > top]
        if above:
            x, value = above[-1]
            yield f"The {one.name} leaves the chart: {number(value)} tok/s at C = {x:g}."


def _throughput(made: _Curves) -> Chart | None:
    return made.chart(
        "Throughput of all requests, tok/s",
        Series("measured", made.of_row("aggregate"), labelled=True, errors=made.errors()),
        made.baseline("aggregate_tok_s"),
        Series("memory model", made.of_limit(lambda _, limit: limit.model_tok_s), 2),
        Series(HARD, made.of_limit(lambda _, limit: limit.hard_tok_s), 3),
    )


def _rate(made: _Curves) -> Chart | None:
    return made.chart(
        "Rate of one request after its first token, tok/s",
        Series("measured", made.of_row("user"), labelled=True),
        made.baseline("decode_tok_s"),
        Series("memory model", made.of_limit(lambda level, limit: limit.model_tok_s / _x(level)), 2),
    )


def _ttft(made: _Curves) -> Chart | None:
    return made.chart(
        "Time to first token, s (log scale)",
        Series("mean", made.of_row("ttft_mean"), labelled=True),
        made.baseline("ttft_mean_s"),
        Series("p50", made.of_row("ttft_p50"), 2),
        Series("p99", made.of_row("ttft_p99"), 3),
        log=True,
    )
