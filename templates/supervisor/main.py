"""The program."""

from __future__ import annotations

import os
from pathlib import Path

from supervisor.files import Folders
from supervisor.loop import Supervisor
from supervisor.settings import parse_settings


def refuse_outside_a_container() -> None:
    """
    This program ends every process it can see.

    Raises:
        SystemExit: this is the machine's own process namespace, or not a container's main process.
    """
    initial = "pid:[4026531836]"  # PROC_PID_INIT_INO, fixed in Linux
    if Path("/proc/self/ns/pid").readlink().name == initial or os.getppid() not in (0, 1):
        what = "the main process of a container, and nothing else"
        raise SystemExit(f"supervise.py is {what}: see run.sh beside it")


def main() -> None:
    refuse_outside_a_container()
    folders = Folders.from_environment()
    settings = parse_settings((folders.release / "supervise.json").read_text())
    Supervisor(settings, folders).run()
    os._exit(0)  # threads that wait for an engine that is no more do not hold us up
