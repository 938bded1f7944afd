"""spark-deploy at a terminal, with somebody who answers its question."""

from __future__ import annotations

import os
import pty
import subprocess
from typing import TYPE_CHECKING

from .admin import spark_deploy_program

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .admin import AdminHome

QUESTION = b"[y/N]"


def at_a_terminal(
    home: AdminHome, answer: str, *arguments: str, env: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Exit code and all output of spark-deploy at a terminal, where *answer* is typed at the question."""
    ours, theirs = pty.openpty()
    program = home.command([*spark_deploy_program(), *arguments])
    environment = home.environment({"TERM": "dumb", **(env or {})})
    with subprocess.Popen(
        program,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        cwd=home.home,
        start_new_session=True,
    ) as process:
        os.close(theirs)
        seen, answered = b"", False
        while chunk := read(ours):
            seen += chunk
            if not answered and QUESTION in seen:
                answered = True
                os.write(ours, answer.encode() + b"\n")
        os.close(ours)
    return process.returncode, seen.decode().replace("\r\n", "\n")


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # EIO: the last process has closed the other end
        return b""
