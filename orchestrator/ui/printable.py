"""Text from a node on its way to a terminal. Pure."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNITS = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))

# ECMA-48: CSI (7 and 8 bit); OSC, DCS, SOS, PM and APC up to their end or that of the line; two-byte escapes.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]"
)


def printable(text: str) -> str:
    """
    Give *text* without anything a terminal would act on; only line breaks stay.

    A log line may carry colours, cursor movements, a new window title or a right-to-left override. Of a
    progress bar that redraws itself with carriage returns the last state is kept.
    """
    lines = _ESCAPES.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(_characters(_redrawn(line)) for line in lines)


def one_line(text: str) -> str:
    """Give the same on one line, blank lines left out."""
    return " | ".join(line.strip() for line in printable(text).split("\n") if line.strip())


def folded(line: str, width: int, indent: str = "") -> str:
    """Give *line* broken at blanks, further lines behind *indent*: a terminal would break within words."""
    if len(line) <= width:
        return line
    pieces = textwrap.wrap(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(pieces)


def visible(text: str) -> str:
    """Give *text* with every control character spelled out, for what is shown byte for byte."""
    return "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)


def duration(seconds: float) -> str:
    """Words for a length of time: `0.4 s`, `42 s`, `2 min 5 s`, `1 h 3 min`, `4 d 2 h`."""
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f} s"
    whole = round(seconds)
    for size, unit, part, part_unit in _UNITS:
        if whole >= size:
            rest = whole % size // part
            return f"{whole // size} {unit} {rest} {part_unit}" if rest else f"{whole // size} {unit}"
    return f"{whole} s"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Give *rows* as lines whose cells stand under each other; an empty cell is `-`."""
    cells = [[one_line(cell) or "-" for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in cells]


def _redrawn(line: str) -> str:
    return next((piece for piece in reversed(line.split("\r")) if piece.strip()), "")


def _characters(line: str) -> str:
    return "".join(c if c.isprintable() else " " if c.isspace() else "" for c in line)
