"""report.html: one page that needs no script and nothing from elsewhere. Pure but for its template, page.html.j2."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from orchestrator.ui.printable import one_line
from orchestrator.ui.report.chart import show_chart
from orchestrator.ui.report.content import DEFINED, DEFINITIONS, command, facts, heading, tables
from orchestrator.ui.report.curves import curves
from orchestrator.ui.report.strips import show_itl, show_timeline
from orchestrator.ui.report.table import rows, windows
from orchestrator.ui.report.text import answer, title, told_gates

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.model.bench import Result


def show_page(result: Result) -> str:
    verdict = result.verdict
    valid = [level for level in result.levels if level.valid]
    return _template().render(
        heading=heading(result),
        subtitle=next(title(result)).replace("  ", " · "),
        status=verdict.status if verdict else "valid" if result.valid else "invalid",
        verdict=f"against {verdict.baseline}. {verdict.text}" if verdict else _checked(result),
        finished=result.finished,
        words=result.words,
        answer=answer(result),
        gates=told_gates(result),
        tables=tables(result),
        windows=windows(rows(result)),
        charts=_drawn([*map(show_chart, curves(result)), show_itl(valid)]),
        timelines=_drawn(map(show_timeline, valid)),
        facts=facts(result),
        fallbacks=result.fallbacks,
        command=command(result),
        defined=DEFINED,
        definitions=DEFINITIONS,
    )


def _checked(result: Result) -> str:
    bad = ", ".join(level.level.name for level in result.levels if not level.valid)
    return (
        f"The measurement cannot be trusted at C = {bad}." if bad else "The measurement passed every check."
    )


def _drawn(drawings: Iterable[str]) -> list[Markup]:
    """They escape every text themselves."""
    return [Markup(drawing) for drawing in drawings if drawing]  # noqa: S704


@lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    engine = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return engine.get_template("page.html.j2")


def _finalized(value: Any) -> Any:
    return value if isinstance(value, Markup) or not isinstance(value, str) else one_line(value)
