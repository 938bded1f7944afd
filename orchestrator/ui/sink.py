"""Which of the three ways to show a run, and several sinks as one."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from orchestrator.ui.jsonl import jsonl
from orchestrator.ui.plain import plain
from orchestrator.ui.printable import printable
from orchestrator.ui.streams import coloured, terminal, write

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator.model.event import Event, Sink


@contextmanager
def choose(
    output: str, stderr: TextIO, stdout: TextIO, environ: Mapping[str, str] = os.environ
) -> Iterator[Sink]:
    """
    Give the sink for *output* (live, plain, json); `live` is `plain` where the cursor of *stderr* cannot be moved.

    The answer (text of `finished`) goes to *stdout*, all else to *stderr*; with `json` everything goes to
    *stdout*. `error` events are not shown by live and plain: who catches the error calls `ui.errors.show`.
    May be called from several threads.
    """
    if output == "json":
        yield tee(jsonl(stdout))
    elif output == "live" and terminal(stderr, environ):
        from orchestrator.ui.live import live  # noqa: PLC0415 - rich costs 60 ms

        with live(stderr, colour=coloured(stderr, environ)) as shown:
            yield tee(shown, answer(stdout))
    else:
        yield tee(plain(stderr), answer(stdout))


def tee(*sinks: Sink) -> Sink:
    """Give one sink for all of *sinks*, one event at a time, whichever thread it comes from."""
    lock = threading.Lock()

    def sink(event: Event) -> None:
        with lock:
            for each in sinks:
                each(event)

    return sink


def answer(stdout: TextIO) -> Sink:
    """Give the sink that prints the text of `finished`."""

    def sink(event: Event) -> None:
        if event.kind == "finished" and event.text:
            write(stdout, printable(event.text).rstrip("\n") + "\n")

    return sink
