"""How a mistake or a broken machine is told to a human, and to the journal."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TextIO

from orchestrator.errors import ManyError, SparkDeployError
from orchestrator.model.event import Event
from orchestrator.ui.printable import printable
from orchestrator.ui.streams import coloured, write

if TYPE_CHECKING:
    from collections.abc import Mapping


def show(error: SparkDeployError, stream: TextIO, environ: Mapping[str, str] = os.environ) -> None:
    """Print `Error: …` and its at/found/wanted/hint lines; several errors one after the other."""
    red, plain = ("\x1b[1;31m", "\x1b[0m") if coloured(stream, environ) else ("", "")
    for each in _flat(error):
        write(stream, f"{red}Error:{plain} {printable(str(each))}\n")


def event(error: SparkDeployError, at: float) -> Event:
    """Give the same for the journal and `--output json`: *text* is the whole message."""
    return Event(at=at, kind="error", text=printable(str(error)), data={"exit_code": int(error.exit_code)})


def _flat(error: SparkDeployError) -> tuple[SparkDeployError, ...]:
    if isinstance(error, ManyError):
        return tuple(inner for each in error.errors for inner in _flat(each))
    return (error,)
