"""Running programs inside a namespace, and an error that shows what they said."""

from __future__ import annotations

import subprocess
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

CLEAN_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}


class LabError(Exception):
    """The lab itself is broken or not up; never a claim of a test."""


def run(command: Sequence[str | Path], *, stdin: bytes = b"", timeout_s: float = 60) -> str:
    """
    Standard output of *command*.

    Raises:
        LabError: it failed; carries its words.
    """
    words = [str(word) for word in command]
    done = subprocess.run(words, input=stdin, capture_output=True, timeout=timeout_s, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise LabError(f"{' '.join(words)}: exit {done.returncode}: {said}")
    return done.stdout.decode(errors="replace")


def wait_for(what: str, holds: Callable[[], object], *, timeout_s: float, every_s: float = 0.05) -> None:
    """
    Return when *holds* is true.

    Raises:
        LabError: it was not within *timeout_s*; names *what*.
    """
    end = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > end:
            raise LabError(f"waited {timeout_s:g} s for {what}")
        time.sleep(every_s)
