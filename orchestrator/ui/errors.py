"""How a mistake or a broken machine is told to a human, and to the journal."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TextIO

from orchestrator.errors import SparkDeployError, each
from orchestrator.model.event import Event
from orchestrator.ui.printable import folded, printable
from orchestrator.ui.streams import coloured, columns_of, write

if TYPE_CHECKING:
    from collections.abc import Mapping

INDENT = " " * 9  # under what follows `  found  `


def show(error: SparkDeployError, stream: TextIO, environ: Mapping[str, str] = os.environ) -> None:
    """Print `Error: …` and its at/found/wanted/hint lines; several errors one after the other."""
    red, plain = ("\x1b[1;31m", "\x1b[0m") if coloured(stream, environ) else ("", "")
    width = columns_of(stream)
    for single in each(error):
        first, *details = (_fitted(line, width) for line in f"Error: {printable(str(single))}".split("\n"))
        first = first.replace("Error:", f"{red}Error:{plain}", 1)
        write(stream, "\n".join([first, *details]) + "\n")


def _fitted(line: str, width: int) -> str:
    """Fold prose; a hint may be a command, which is copied whole only from a line of its own."""
    return line if line.startswith("  hint ") else folded(line, width, INDENT)


def event(error: SparkDeployError, at: float) -> Event:
    """Give the same for the journal and `--output json`: *text* is the whole message."""
    return Event(at=at, kind="error", text=printable(str(error)), data={"exit_code": int(error.exit_code)})
