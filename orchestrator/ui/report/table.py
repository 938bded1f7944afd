"""The table of levels: which columns, and what stands in their cells. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from orchestrator.bench.summary import row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from orchestrator.model.bench import LevelResult, Result, Verdict

    Row = Mapping[str, Any]  # of bench.summary.row; also "response", "goodput" (a share) and "baseline"


@dataclass(frozen=True)
class Column:
    """*detail* 0 to 4: where there is little room, columns of a higher one are left out."""

    heading: str
    cell: Callable[[Row], str]
    detail: int = 0


def number(value: float | None, like: float | None = None) -> str:
    """As many decimals as give three digits that count (of *like*, where given), never an exponent."""
    if value is None:
        return "-"
    size = abs(value if like is None else like)
    places = next((places for places, least in enumerate((1000, 10, 1)) if size >= least), 3)
    return f"{value:.{places}f}"


def percent(value: float | None, *, signed: bool = False) -> str:
    return "-" if value is None else f"{100 * value:{'+.1f' if signed else '.0f'}} %"


def _aggregate(row: Row) -> str:
    half = row.get("aggregate_ci")
    return number(row.get("aggregate")) + ("" if half is None else f" ±{number(half, row.get('aggregate'))}")


def _figure(name: str) -> Callable[[Row], str]:
    return lambda row: number(row.get(name))


COLUMNS = (
    Column("C", lambda row: str(row["level"])),
    Column("agg tok/s ±95 %", _aggregate),
    Column("/user tok/s", _figure("user")),
    Column("TTFT s", _figure("ttft_mean")),
    Column("p50", _figure("ttft_p50"), 4),
    Column("p99", _figure("ttft_p99"), 3),
    Column("ITL ms p50", _figure("itl_p50"), 3),
    Column("p99", _figure("itl_p99"), 3),
    Column("E2E s", _figure("e2e_mean"), 4),
    Column("response s", _figure("response"), 2),
    Column("goodput", lambda row: percent(row.get("goodput")), 1),
    Column("of model", lambda row: percent(row.get("efficiency")), 1),
    Column("vs baseline", lambda row: str(row.get("baseline", ""))),
    Column("ok/failed", lambda row: f"{row.get('ok')}/{row.get('failed')}", 2),
)


def rows(result: Result) -> tuple[Row, ...]:
    """Give one row a level, with what stands in no summary, and what the verdict says of its throughput."""
    return tuple(
        {
            **row(level),
            "response": _response(level),
            "goodput": _goodput(level),
            "baseline": against(level.level.name, result.verdict),
        }
        for level in result.levels
    )


def _response(level: LevelResult) -> float | None:
    """From when a request was due: in an open loop that is what its user waits. In a closed one it is E2E."""
    means = [repeat.response_s.mean for repeat in level.repeats if repeat.valid]
    known = [mean for mean in means if mean is not None]
    return fmean(known) if known and level.level.rate is not None else None


def _goodput(level: LevelResult) -> float | None:
    shares = [repeat.goodput.share for repeat in level.repeats if repeat.valid and repeat.goodput]
    return fmean(shares) if shares else None


def against(level: str, verdict: Verdict | None) -> str:
    """`+0.4 %  pass`: the level's throughput against the baseline's; "" where it has none."""
    found = {metric.metric: metric for metric in verdict.metrics if metric.level == level} if verdict else {}
    metric = found.get("aggregate_tok_s") or found.get("steady_tok_s")
    return f"{percent(metric.change, signed=True)}  {metric.status}" if metric else ""


def shown(found: Iterable[Row], detail: int = 4) -> tuple[Column, ...]:
    """Leave out what no row of *found* has, too."""
    given = [row for row in found if row["status"] == "ok"]
    return tuple(
        column
        for column in COLUMNS
        if column.detail <= detail
        and (column.heading in ("C", "ok/failed") or any(column.cell(row) not in ("", "-") for row in given))
    )


def lines(found: Sequence[Row], width: int) -> list[str]:
    """Give the table as text of as many columns as fit into *width*, at least the most important ones."""
    for detail in (4, 3, 2, 1, 0):
        made = _lines(found, shown(found, detail))
        if max(map(len, made)) <= width:
            break
    return made


def _lines(found: Sequence[Row], columns: Sequence[Column]) -> list[str]:
    """A level that is INVALID shows no figures."""
    full = [tuple(column.cell(row) for column in columns) for row in found if row["status"] == "ok"]
    bad = {f"{row['level']}" for row in found if row["status"] != "ok"}
    headings = tuple(column.heading for column in columns)
    heading, *others = aligned([headings, *full], least=max(map(len, bad), default=0))
    made = iter(others)
    width = len(heading) - len(heading.lstrip()) + 1
    return [
        heading,
        *(next(made) if row["status"] == "ok" else f"{row['level']:>{width}}  INVALID" for row in found),
    ]


def aligned(cells: Sequence[Sequence[str]], least: int = 0) -> list[str]:
    """Give lines whose cells stand right under each other, the first ones *least* characters wide."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    widths[0] = max(widths[0], least)
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]


def windows(found: Sequence[Row]) -> str:
    """Say what the aggregates are taken over: a mean over the whole run includes its slow begin and end."""
    names = {
        window: ", ".join(
            str(row["level"]) for row in found if row["window"] == window and row["status"] == "ok"
        )
        for window in ("steady", "run")
    }
    if not names["steady"]:
        return "agg: over the whole run" if names["run"] else ""
    return "agg: over the steady window" + (
        f", at C = {names['run']} over the whole run" if names["run"] else ""
    )
