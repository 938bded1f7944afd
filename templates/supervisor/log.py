"""What a child's log says: how far it is, over what transport, and why it ended. Pure."""

from __future__ import annotations

import re
from collections import deque

from supervisor.progress import Progress, message, parse_progress, plain

TAIL_LINES = 20

# The verdict lines only: `NET/IB : No device found.` may be followed by NET/IB, and a plugin that is
# merely loaded carries nothing. One channel over TCP outweighs all others: the first that is proven holds.
_TRANSPORTS = (
    ("NET/Socket", re.compile(r"Using network Socket|via NET/Socket/")),
    ("NET/IB", re.compile(r"Using network IB|via NET/IB(?:ext\w*)?/")),
    ("gloo", re.compile(r"\bbackend=gloo\b")),
)


def parse_transport(line: str) -> str:
    """Give `NET/IB`, `NET/Socket` or `gloo` if the line proves it, else ``""``."""
    return next((name for name, pattern in _TRANSPORTS if pattern.search(line)), "")


_EXCEPTION = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt|Timeout)(?:\([\w.]+\))?(?::|$)")
_GOES_ON = re.compile(r"validation errors? for \w+$")  # pydantic says what is wrong on the next line
_USAGE = re.compile(r"^(?:vllm|api_server\.py|ray)[\w ]*: error: |^Error: ")
_SECONDARY = re.compile(
    r"Engine core initialization failed|ActorHandleNotFoundError|^RuntimeError: cancelled|EngineDeadError"
    r"|CancelledError|KeyboardInterrupt|SystemExit|WrongClusterID"
)
_RANK_ERROR = re.compile(r"RayTaskError\(.*ip=([\d.]+)")
_WORKER_DIED = re.compile(r"A worker died or was killed.*?Worker IP address: ([\d.]+)")
_NODE_DEAD = re.compile(r"address: ([\d.]+) .*has been marked dead")
_DIED = re.compile(
    r"RayWorkerProc rank=\[[\d, ]+\] died unexpectedly|EngineCore encountered a fatal error"
    r"|engine core exited unexpectedly|\w+ \[exit code=-?\d+\]"
)
_QUOTE_BEGINS = re.compile(r"----- BEGIN .* tail")  # Ray quotes pages of its own logs: evidence has them
_QUOTE_ENDS = re.compile(r"----- END .* tail")


class EngineLog:
    """
    What the lines of one child say: how far it is, over what transport, and why it ended.

    The last lines of a failed start are secondary. The cause is the last line of the first
    `EngineCore failed to start` traceback; then what Ray says of a dead worker; then the last exception.
    """

    def __init__(self) -> None:
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.progress = Progress()
        self.transport = ""
        self.ip = ""  # of the node where it went wrong, if the log names one
        self._root = ""
        self._in_root = False
        self._note = ""  # what Ray says of a dead process
        self._exception = ""
        self._last = ""
        self._in_quote = False

    def feed(self, line: str) -> bool:
        """Take one line; True if it tells of progress."""
        line = plain(line)
        self._in_quote = self._in_quote and not _QUOTE_ENDS.search(line)
        if not line or self._in_quote:
            return False
        self._in_quote = bool(_QUOTE_BEGINS.search(line))
        self.tail.append(line)
        self._feed_transport(line)
        self._feed_cause(line)
        return self._feed_progress(line)

    @property
    def cause(self) -> str:
        return self._root or self._note or self._exception

    def _feed_progress(self, line: str) -> bool:
        found = parse_progress(line)
        if found and found >= self.progress:
            self.progress = found
        return found is not None

    def _feed_transport(self, line: str) -> None:
        proven = (parse_transport(line), self.transport)
        self.transport = next((name for name, _ in _TRANSPORTS if name in proven), "")

    def _feed_cause(self, line: str) -> None:
        text = message(line)
        if "EngineCore failed to start" in text and not self._root:
            self._in_root = True
        elif self._in_root:
            self._feed_root(line, text)
        self._feed_notes(text)
        if (_EXCEPTION.match(text) or _USAGE.match(text)) and not _SECONDARY.search(text):
            self._exception = text
        elif self._last == self._exception and _GOES_ON.search(self._last):
            self._exception = f"{self._last}: {text.strip()}"
        self._last = text

    def _feed_root(self, line: str, text: str) -> None:
        if text.startswith("Process EngineCore"):
            self._in_root = False
        elif not re.search(r"\[core\.py:\d+\]", line):
            return  # another process speaks in between
        elif _EXCEPTION.match(text):
            self._root = text
            if match := _RANK_ERROR.search(text):
                self.ip = match.group(1)
        elif _GOES_ON.search(self._root) and text.strip():
            self._root = f"{self._root}: {text.strip()}"

    def _feed_notes(self, text: str) -> None:
        if match := _WORKER_DIED.search(text):
            self._note = f"a process of the engine died or was killed on {match.group(1)}"
            self.ip = self.ip or match.group(1)
        elif match := _NODE_DEAD.search(text):
            self._note = self._note or f"Ray marked {match.group(1)} dead"
            self.ip = self.ip or match.group(1)
        elif match := _DIED.search(text):
            self._note = self._note or match.group(0)
