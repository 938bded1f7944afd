"""Ray and vLLM as child processes."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from supervisor.console import Console

KEPT_LINES = 400  # of each child, for the evidence


class Children:
    """`ray` and `vllm`: started, their output read line by line with secrets struck out, their ends seen."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._exits: dict[str, int] = {}
        self._fresh: deque[tuple[str, str]] = deque(maxlen=20_000)
        self.kept: dict[str, deque[str]] = {name: deque(maxlen=KEPT_LINES) for name in ("ray", "vllm")}
        self.secrets: tuple[str, ...] = ()

    def start(self, name: str, argv: list[str], env: Mapping[str, str]) -> None:
        self._exits.pop(name, None)
        self.kept[name].clear()
        try:
            child = subprocess.Popen(
                argv,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            self._line(name, f"Error: {argv[0]}: {error.strerror} (in this image)")
            self._exits[name] = 127
            return
        self._running[name] = child
        threading.Thread(target=self._pump, args=(name, child), name=f"read {name}", daemon=True).start()

    def exits(self) -> dict[str, int]:
        for name, child in list(self._running.items()):
            if (code := child.poll()) is not None:
                del self._running[name]
                self._exits[name] = code
        return dict(self._exits)

    def forget(self) -> None:
        """They are to be ended: what they still say or how they end is of no interest."""
        for name, child in list(self._running.items()):
            del self._running[name]
            threading.Thread(target=child.wait, name=f"reap {name}", daemon=True).start()
        self._exits.clear()
        self._fresh.clear()

    def fresh_lines(self) -> tuple[tuple[str, str], ...]:
        lines: list[tuple[str, str]] = []
        with contextlib.suppress(IndexError):
            while True:
                lines.append(self._fresh.popleft())
        return tuple(lines)

    def struck(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text

    def _pump(self, name: str, child: subprocess.Popen[bytes]) -> None:
        if child.stdout is None:
            return
        rest = b""
        while chunk := os.read(child.stdout.fileno(), 65536):
            *lines, rest = re.split(rb"\r\n|[\r\n]", rest + chunk)  # \r: progress bars
            for line in lines:
                self._line(name, line[:8000].decode(errors="replace"), child)
            rest = rest[-8000:]
        self._line(name, rest.decode(errors="replace"), child)
        child.stdout.close()

    def _line(self, name: str, text: str, child: subprocess.Popen[bytes] | None = None) -> None:
        text = self.struck(text)
        if not text.strip():
            return
        self._console.say(name, text)
        if child is None or self._running.get(name) is child or name in self._exits:
            self.kept[name].append(text)
            self._fresh.append((name, text))
