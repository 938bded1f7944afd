"""All processes of the container, by /proc."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

from supervisor.watching import Activity


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; empty: the process has gone."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text()
        return text[text.rindex(")") + 2 :].split()
    return []


def other_processes() -> list[int]:
    """
    Every process of the container but its init, this one, and what an operator runs by `docker exec`.

    The last have a parent outside (0), or one of their ancestors has.
    """
    stats = {int(entry): _stat(int(entry)) for entry in os.listdir("/proc") if entry.isdigit()}  # noqa: PTH208
    parents = {pid: int(stat[1]) for pid, stat in stats.items() if stat and stat[0] != "Z"}

    def root(pid: int) -> int:
        while parents.get(pid, 0):
            pid = parents[pid]
        return pid

    return [pid for pid in parents if pid not in (1, os.getpid()) and root(pid) in (1, os.getpid())]


def kill_others(limit_s: float) -> list[int]:
    """SIGKILL them all, also stopped ones, until none is left; give those that could not be killed."""
    deadline = time.monotonic() + limit_s
    while (left := other_processes()) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    return left


class ActivityMeter:
    """Adds up what the processes of the container read and compute; one that has gone keeps its share."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[float, float]] = {}
        self._total = Activity()
        self._tick_s = 1 / os.sysconf("SC_CLK_TCK")

    def measure(self) -> Activity:
        now = {pid: self._of(pid) for pid in other_processes()}
        grown = [self._growth(pid, values) for pid, values in now.items()]
        self._last = now
        self._total = Activity(
            self._total.read_bytes + sum(read for read, _ in grown),
            self._total.cpu_s + sum(cpu for _, cpu in grown),
        )
        return self._total

    def _growth(self, pid: int, values: tuple[float, float]) -> tuple[float, float]:
        read, cpu = self._last.get(pid, (0.0, 0.0))
        return max(0.0, values[0] - read), max(0.0, values[1] - cpu)

    def _of(self, pid: int) -> tuple[float, float]:
        """Bytes by read(2) and by page faults; CPU with that of children that have ended (compilers)."""
        stat, read = _stat(pid), 0
        with contextlib.suppress(OSError, ValueError):
            io = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
            read = int(io["rchar"]) + int(io["read_bytes"])
        return float(read), sum(map(int, stat[11:15])) * self._tick_s if stat else 0.0


def memory_kb() -> dict[str, int]:
    """/proc/meminfo."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return {}
