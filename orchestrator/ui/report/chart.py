"""Charts as SVG: scales, ticks, lines. Pure; colours and dashes are classes that the page defines."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from orchestrator.ui.report.table import number

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

WIDTH = 420
LEFT, RIGHT = 46, 16
CHARACTER = 7.2  # width of one at the 12 units of the page's labels, in a wide font
LEGEND_LINE = 17
SMALLEST = 1e-4  # of a log scale: a tenth of a millisecond
MARK, ABOVE = 5, 26  # height of a point's marker, and of what stands above a point

Point = tuple[float, float]


@dataclass(frozen=True)
class Scale:
    """Values from *low* to *high* onto *start* to *end* of the drawing; on a log scale a 0 stands at its low end."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        least = max(value, self.low)
        low, high, at = (
            map(math.log, (self.low, self.high, least)) if self.log else (self.low, self.high, value)
        )
        return self.start + (self.end - self.start) * ((at - low) / (high - low) if high > low else 0.5)

    def ticks(self) -> list[float]:
        """Some four round values; on a log scale as many of each decade as leave room for their names."""
        if not self.log:
            step = _round_step((self.high - self.low) / 4)
            return [
                step * k for k in range(math.ceil(self.low / step), math.floor(self.high / step + 1e-9) + 1)
            ]
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for factors in (range(1, 10), (1, 2, 5), (1,)):
            found = [
                f * 10.0**k for k in decades for f in factors if self.low <= f * 10.0**k <= self.high * 1.0001
            ]
            if len(found) <= 7:
                break
        return found


def _round_step(least: float) -> float:
    power = 10 ** math.floor(math.log10(least)) if least > 0 else 1
    return next(float(f * power) for f in (1, 2, 5, 10) if f * power >= least)


@dataclass(frozen=True)
class Series:
    """*style* 0 to 3 picks colour, dash and marker. *errors*: half widths beside *points*."""

    name: str
    points: tuple[Point, ...]
    style: int = 0
    labelled: bool = False
    errors: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Chart:
    """Lines over levels. *top*: the highest value that must fit; what lies above is cut off."""

    title: str
    series: tuple[Series, ...]
    at: tuple[tuple[float, str], ...]  # ticks of the x axis, which is logarithmic
    x_title: str
    top: float
    log: bool = False
    notes: tuple[str, ...] = ()


def show_chart(chart: Chart) -> str:
    legend = list(_legend([*((series.name, series.style) for series in chart.series)]))
    head = 24 + LEGEND_LINE * len(legend)
    bottom = head + 190
    xs = [x for x, _ in chart.at]
    x = Scale(min(xs), max(xs), LEFT + 14, WIDTH - RIGHT - 14, log=True)
    ys = [value for series in chart.series for _, value in series.points if value <= chart.top]
    y = (
        Scale(max(min(ys), SMALLEST) * 0.8, chart.top * 1.25, bottom, head, log=True)
        if chart.log
        else Scale(0, chart.top * 1.12, bottom, head)
    )
    parts = [
        text(LEFT - 40, 14, chart.title, "title"),
        *(part for line, entries in enumerate(legend) for part in _entries(entries, 30 + LEGEND_LINE * line)),
        *_y_axis(y),
        *x_axis([(x(at), name) for at, name in chart.at], bottom),
        text((LEFT + WIDTH - RIGHT) / 2, bottom + 34, chart.x_title, "axis", "middle"),
        f'<svg x="0" y="{head}" width="{WIDTH}" height="{bottom - head}" viewBox="0 {head} {WIDTH} {bottom - head}">',
        *(part for series in reversed(chart.series) for part in _line(series, xs, x, y)),
        "</svg>",
        *(part for series in chart.series if series.labelled for part in _labels(series, chart.series, x, y)),
        *(text(LEFT, bottom + 52 + 15 * k, note, "axis") for k, note in enumerate(chart.notes)),
    ]
    return svg(chart.title, bottom + 42 + 15 * len(chart.notes), parts)


def svg(title: str, height: float, parts: Iterable[str]) -> str:
    """Give one drawing, with its title for who cannot see it."""
    body = "".join(parts)
    return f'<svg role="img" viewBox="0 0 {WIDTH} {height:.0f}"><title>{escape(title)}</title>{body}</svg>'


def _legend(entries: Sequence[tuple[str, int]]) -> Iterator[list[tuple[float, str, int]]]:
    """Give lines of (x, name, style) that fit into the width."""
    line: list[tuple[float, str, int]] = []
    at = 6.0
    for name, style in entries:
        wide = 32 + CHARACTER * len(name) + 12
        if line and at + wide > WIDTH:
            yield line
            line, at = [], 6.0
        line.append((at, name, style))
        at += wide
    if line:
        yield line


def _entries(entries: Iterable[tuple[float, str, int]], y: float) -> Iterator[str]:
    for at, name, style in entries:
        yield f'<path class="line s{style}" d="M{at:.0f} {y - 4:.0f}h26"/>'
        yield _marker(at + 13, y - 4, style)
        yield text(at + 32, y, name, "label")


def _line(series: Series, xs: Sequence[float], x: Scale, y: Scale) -> Iterator[str]:
    for (left, value), half in zip(series.points, series.errors, strict=False):
        if half and not (y.log and value <= half):
            ends = f"M{x(left):.1f} {y(value - half):.1f}V{y(value + half):.1f}"
            yield f'<path class="error s{series.style}" d="{ends}"/>'
    for run in _unbroken(series.points, xs):
        yield path([(x(left), y(value)) for left, value in run], f"line s{series.style}")
    yield from (_marker(x(left), y(value), series.style) for left, value in series.points)


def _unbroken(points: Sequence[Point], xs: Sequence[float]) -> list[list[Point]]:
    """No line crosses a level of *xs* that has no point: who knows what lies there."""
    values = dict(points)
    runs: list[list[Point]] = [[]]
    for x in xs:
        if x in values:
            runs[-1].append((x, values[x]))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if len(run) > 1]


def path(points: Iterable[Point], css: str) -> str:
    return f'<path class="{css}" d="M{"L".join(f"{left:.1f} {top:.1f}" for left, top in points)}"/>'


def _marker(x: float, y: float, style: int) -> str:
    """A disc, a ring, a diamond or nothing: to be told apart without colour."""
    if style == 0:
        return f'<circle class="mark s0" cx="{x:.1f}" cy="{y:.1f}" r="4"/>'
    if style == 1:
        return f'<path class="hollow s1" d="M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5-5z"/>'
    if style == 2:
        return f'<path class="hollow s2" d="M{x - 3.5:.1f} {y - 3.5:.1f}h7v7h-7z"/>'
    return ""


def _labels(series: Series, others: Sequence[Series], x: Scale, y: Scale) -> Iterator[str]:
    """Above its point, or under it where another line passes close above."""
    for left, value in series.points:
        rises = [y(value) - y(beside) for one in others for at, beside in one.points if at == left]
        passed = any(MARK < rise < ABOVE for rise in rises) and not any(
            -ABOVE < rise < -MARK for rise in rises
        )
        yield text(x(left), y(value) + (19 if passed else -9), number(value), "label halo", "middle")


def _y_axis(y: Scale) -> Iterator[str]:
    for tick in y.ticks():
        yield f'<path class="grid" d="M{LEFT} {y(tick):.1f}H{WIDTH - RIGHT}"/>'
        yield text(LEFT - 6, y(tick) + 4, f"{tick:g}", "axis", "end")


def x_axis(ticks: Iterable[tuple[float, str]], bottom: float, left: float = LEFT) -> Iterator[str]:
    """Leave out the name of a tick that would stand on that of the one before."""
    yield f'<path class="base" d="M{left} {bottom}H{WIDTH - RIGHT}"/>'
    free = 0.0
    for at, name in ticks:
        half = CHARACTER * len(name) / 2
        if at - half >= free:
            free = at + half + 4
            yield f'<path class="base" d="M{at:.1f} {bottom}v4"/>'
            yield text(at, bottom + 17, name, "axis", "middle")


def text(x: float, y: float, words: str, css: str, anchor: str = "") -> str:
    where = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text class="{css}" x="{x:.1f}" y="{y:.1f}"{where}>{escape(words)}</text>'
