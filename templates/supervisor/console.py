"""Standard output, which becomes `docker logs`."""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import IO


class Console:
    """
    Standard output that never blocks whoever speaks.

    The pipe behind it belongs to dockerd: while that is down it fills, and an engine that waits for a log line
    to be written does not serve. Lines that find no room are dropped and counted.
    """

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._lines: queue.Queue[bytes] = queue.Queue(maxsize=20_000)
        self._dropped = 0
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._writer.start()

    def say(self, source: str, text: str) -> None:
        try:
            self._lines.put_nowait(f"[{source}] {text}\n".encode())
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        """Give the last lines a moment to get out."""
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(b"")
        self._writer.join(0.5)

    def _write(self) -> None:
        for line in iter(self._lines.get, b""):
            if self._dropped:
                lost = f"[supervise] {self._dropped} lines were dropped: nobody read them\n"
                self._pipe.write(lost.encode())
                self._dropped = 0
            self._pipe.write(line)
            if self._lines.empty():
                self._pipe.flush()
        self._pipe.flush()
