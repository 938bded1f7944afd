"""report.md. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orchestrator.ui.printable import one_line
from orchestrator.ui.report.content import DEFINED, DEFINITIONS, command, facts, heading, tables
from orchestrator.ui.report.table import rows, windows
from orchestrator.ui.report.text import answer, told_gates, verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orchestrator.model.bench import Result
    from orchestrator.ui.report.content import Table

_SIGNS = re.compile(r"([\\`*_{}\[\]<>|#~])")


def show_markdown(result: Result) -> str:
    levels, *others = tables(result) or (None,)
    parts = [
        f"# {_plain(heading(result))}",
        *_paragraphs(result),
        *([_table(levels)] if levels else []),
        *(_plain(text) for text in (windows(rows(result)),) if text),
        *_section("What it means", result.words),
        *_section(
            "Not valid, or worth a warning", (f"C = {level}: {text}" for level, text in told_gates(result))
        ),
        *_section("What the server could not do", result.fallbacks),
        *(f"## {table.title}\n\n{_table(table)}" for table in others),
        *_section("What was measured", (f"{name}: {text}" for name, text in facts(result).items())),
        f"Again:\n\n```\n{one_line(command(result))}\n```",
        *_section(
            f"What the figures mean ({DEFINED})", (f"{name}: {text}" for name, text in DEFINITIONS.items())
        ),
    ]
    return "\n\n".join(parts) + "\n"


def _paragraphs(result: Result) -> Iterator[str]:
    if not result.finished:
        yield "**This sweep was interrupted: the levels below are whole, others are missing.**"
    if found := verdict(result):
        yield f"**{_plain(found)}**"
    if found := answer(result):
        yield _plain(found)


def _section(title: str, sentences: Iterable[str]) -> Iterator[str]:
    if lines := [f"- {_plain(sentence)}" for sentence in sentences]:
        yield f"## {title}\n\n" + "\n".join(lines)


def _table(table: Table) -> str:
    """Figures stand right; a sentence in the place of figures stands in the second column."""
    size = len(table.headings)
    full = [(*row, *[""] * (size - len(row))) for row in table.rows]
    lines = [table.headings, ("--:",) * size, *(tuple(map(_plain, row)) for row in full)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(text: str) -> str:
    """Whoever named the model shall not format the report."""
    return _SIGNS.sub(r"\\\1", one_line(text))
