"""Small charts, one strip a level: how latencies are spread, and what went on second by second. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.ui.report.chart import LEFT, RIGHT, WIDTH, Scale, path, svg, text, x_axis
from orchestrator.ui.report.table import number

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator.model.bench import LevelResult, Repeat

    Histogram = Sequence[tuple[float, int]]

ROW = 58  # height of one level's strip
INDENT = 60  # width of its name


def show_itl(levels: Sequence[LevelResult]) -> str:
    """Give the ITL histograms of the first repeats, one above the other over one axis; "" without any."""
    found = [(level, level.repeats[0]) for level in levels if level.repeats[0].itl_histogram]
    if not found:
        return ""
    edges = [
        edge for _, repeat in found for edge in (_lowest(repeat.itl_histogram), repeat.itl_histogram[-1][0])
    ]
    x = Scale(min(edges), max(edges), INDENT, WIDTH - RIGHT, log=True)
    bottom = 28 + ROW * len(found)
    parts = [
        text(6, 14, TITLE_ITL, "title"),
        *(
            part
            for k, (level, repeat) in enumerate(found)
            for part in _histogram(level, repeat, x, 28 + ROW * (k + 1))
        ),
        *x_axis([(x(tick), f"{tick:g}") for tick in x.ticks()], bottom + 6, INDENT),
        text(
            (INDENT + WIDTH - RIGHT) / 2,
            bottom + 40,
            "ms a token (log scale); line: median, dashed: p99",
            "axis",
            "middle",
        ),
    ]
    return svg(TITLE_ITL, bottom + 50, parts)


TITLE_ITL = "Inter-token latency: share of tokens, per level"


def _lowest(histogram: Histogram) -> float:
    """The lower edge of the first bin: bins are equally wide on a log scale."""
    (first, _), *others = histogram
    return first**2 / others[0][0] if others else first * 0.98


def _histogram(level: LevelResult, repeat: Repeat, x: Scale, bottom: float) -> Iterator[str]:
    """Each level has its own height: its highest bin fills the strip."""
    most = max(count for _, count in repeat.itl_histogram)
    y = Scale(0, most, bottom, bottom - ROW + 16)
    left, steps = x(_lowest(repeat.itl_histogram)), ""
    outline = f"M{left:.1f} {bottom}"
    for edge, count in repeat.itl_histogram:
        steps += f"V{y(count):.1f}H{x(edge):.1f}"
    yield f'<path class="area s0" d="{outline}{steps}V{bottom}Z"/>'
    yield f'<path class="base" d="M{INDENT} {bottom}H{WIDTH - RIGHT}"/>'
    yield text(6, bottom - 4, f"C = {level.level.name}", "label")
    for value, css, anchor in ((repeat.itl_ms.p50, "", "end"), (repeat.itl_ms.p99, " dashed", "start")):
        if value is not None:
            yield f'<path class="mean{css}" d="M{x(value):.1f} {bottom}V{bottom - ROW + 16}"/>'
            beside = -4 if anchor == "end" else 0
            yield text(x(value) + beside, bottom - ROW + 12, number(value), "axis halo", anchor)


def show_timeline(level: LevelResult) -> str:
    """Give tok/s and, under it, requests in flight over the seconds of every repeat; "" without any."""
    lines = [repeat.timeline for repeat in level.repeats if len(repeat.timeline) > 1]
    if not lines:
        return ""
    title = f"C = {level.level.name}: tok/s and requests in flight, second by second"
    last_s = max(line[-1][0] for line in lines)
    x = Scale(0, last_s, LEFT, WIDTH - RIGHT)
    parts = [text(6, 14, title, "title")]
    for column, (name, top, height, style) in enumerate((("tok/s", 38, 80, 0), ("in flight", 142, 40, 2)), 1):
        y = Scale(0, max(row[column] for line in lines for row in line) * 1.08 or 1, top + height, top)
        parts += [text(LEFT + 4, top - 6, name, "label"), *_y_ticks(y)]
        parts += [path([(x(row[0]), y(row[column])) for row in line], f"thin s{style}") for line in lines]
    parts += [
        *x_axis([(x(tick), f"{tick:g}") for tick in x.ticks()], 182, LEFT),
        text(WIDTH / 2, 216, "seconds", "axis", "middle"),
    ]
    return svg(title, 222, parts)


def _y_ticks(y: Scale) -> Iterator[str]:
    for tick in (0.0, y.ticks()[-1]):
        yield f'<path class="grid" d="M{LEFT} {y(tick):.1f}H{WIDTH - RIGHT}"/>'
        yield text(LEFT - 6, y(tick) + 4, f"{tick:g}", "axis", "end")
