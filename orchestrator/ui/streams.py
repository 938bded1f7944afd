"""What a stream can show, and writing to one that may be gone."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Mapping


def terminal(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether the cursor of *stream* can be moved."""
    with contextlib.suppress(ValueError):  # closed
        return stream.isatty() and environ.get("TERM", "") not in ("dumb", "unknown")
    return False


def columns_of(stream: TextIO) -> int:
    """How many characters a line of the terminal holds; without limit where *stream* is none."""
    with contextlib.suppress(OSError, ValueError):
        return os.get_terminal_size(stream.fileno()).columns or sys.maxsize
    return sys.maxsize


def coloured(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Whether colours are shown: on a terminal, unless NO_COLOR is set (no-color.org)."""
    return terminal(stream, environ) and not environ.get("NO_COLOR")


def write(stream: TextIO, text: str) -> None:
    """
    Write and flush *text*; who closed the other end of a pipe misses it, and the run goes on.

    An `up` in the middle of a change must not end in a half-started pair because `| head` had enough.
    """
    try:
        _encoded(stream, text)
        stream.flush()
    except BrokenPipeError:
        let_go(stream)
    except (OSError, ValueError):  # a terminal that hung up, a closed stream
        pass


def _encoded(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
    except UnicodeEncodeError:
        encoding = stream.encoding or "ascii"
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))


def let_go(stream: TextIO) -> None:
    """Point *stream* at /dev/null, or Python complains of what is left in its buffer at exit (code 120)."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Patient(io.TextIOBase):
    """*stream* for a library that writes by itself: write() and flush() as above."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding or "utf-8"

    def write(self, text: str) -> int:
        write(self._stream, text)
        return len(text)

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()
