"""A result of `bench` as text, tables and one page."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.model.bench import Result


def files(result: Result) -> Mapping[str, str]:
    """Give the reports that lie beside result.json, by file name."""
    from orchestrator.ui.report.csv import show_csv  # noqa: PLC0415 - jinja2 costs 30 ms
    from orchestrator.ui.report.markdown import show_markdown  # noqa: PLC0415
    from orchestrator.ui.report.page import show_page  # noqa: PLC0415

    return {
        "result.csv": show_csv(result),
        "report.md": show_markdown(result),
        "report.html": show_page(result),
    }
