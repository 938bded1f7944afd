"""How a sweep is shown: on a terminal a table that grows, else as any other run."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from orchestrator.ui.sink import answer, choose, tee
from orchestrator.ui.streams import coloured, terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator.model.event import Sink


@contextmanager
def bench_screen(
    output: str, stderr: TextIO, stdout: TextIO, environ: Mapping[str, str] = os.environ
) -> Iterator[Sink]:
    """As `ui.sink.choose`, but `live` is the table of levels."""
    if output != "live" or not terminal(stderr, environ):
        with choose(output, stderr, stdout, environ) as sink:
            yield sink
        return
    from orchestrator.ui.growing import Growing  # noqa: PLC0415 - rich costs 60 ms
    from orchestrator.ui.live import live  # noqa: PLC0415

    with live(stderr, colour=coloured(stderr, environ), screens=Growing) as shown:
        yield tee(shown, answer(stdout))
