"""The shape of the lines that Ray and vLLM print; copied from real logs."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from typing import NoReturn

PR_SET_NAME = 15  # linux/prctl.h


def _clock(pattern: str) -> tuple[str, int]:
    now = time.time()
    return time.strftime(pattern, time.localtime(now)), int(now % 1 * 1000)


def ray_line(text: str, level: str = "INFO", source: str = "scripts.py:1043") -> str:
    day, milliseconds = _clock("%Y-%m-%d %H:%M:%S")
    return f"{day},{milliseconds:03}\t{level} {source} -- {text}"


def core_line(text: str, source: str, level: str = "W") -> str:
    """A line of Ray's C++ side."""
    day, milliseconds = _clock("%Y-%m-%d %H:%M:%S")
    return f"[{day},{milliseconds:03} {level} {os.getpid()} {os.getpid()}] {source}: {text}"


def vllm_line(
    who: str, text: str, level: str = "INFO", source: str = "api_utils.py:347", pid: int = 0
) -> str:
    day, _ = _clock("%m-%d %H:%M:%S")
    return f"({who} pid={pid or os.getpid()}) {level} {day} [{source}] {text}"


def say(line: str) -> None:
    print(line, flush=True)


def call_me(name: str) -> None:
    """Show *name* in `ps -o comm` and to `pkill`, as setproctitle does."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, name.encode(), 0, 0, 0)


def fail(text: str, code: int = 1) -> NoReturn:
    print(text, file=sys.stderr, flush=True)
    sys.exit(code)
