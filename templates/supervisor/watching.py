"""Whether anything moves: the engine's steps, reading and computing, memory that comes back. Pure."""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass

STUCK_CPU_S = 0.15  # seconds of CPU per second and node: below it nobody compiles (idle: 0.1)
STUCK_BYTES = 256 << 10  # bytes per second: below it nobody reads weights (idle: 43 kB)
MEMORY_WAIT_S = 60.0


@dataclass(frozen=True)
class Counters:
    """Of vLLM's /metrics: requests in work, and engine steps since the start."""

    requests: float
    steps: float


def parse_metrics(text: str) -> Counters | None:
    """None: this engine does not count its steps."""
    sums: Counter[str] = Counter()
    for line in text.splitlines():
        name, _, rest = line.partition("{" if "{" in line else " ")
        if name.startswith("vllm:"):
            with contextlib.suppress(ValueError, IndexError):
                sums[name] += float(rest.split()[-1])  # type: ignore[assignment]  # a Counter of floats
    if "vllm:iteration_tokens_total_count" not in sums:
        return None
    steps = sums["vllm:iteration_tokens_total_count"] + sums["vllm:generation_tokens_total"]
    return Counters(
        requests=sums["vllm:num_requests_running"] + sums["vllm:num_requests_waiting"], steps=steps
    )


@dataclass(frozen=True)
class Activity:
    """Bytes read and seconds of CPU by everything in the containers, since their supervisors began."""

    read_bytes: float = 0
    cpu_s: float = 0


class Stillness:
    """Tells when a start does nothing: no progress line, no bytes read, no CPU used on any node."""

    def __init__(self, now: float, limit_s: float, *, nodes: int) -> None:
        self._limit_s = limit_s
        self._cpu_s = STUCK_CPU_S * nodes
        self._since = now
        self._at_since: Activity | None = None

    def moved(self, now: float) -> None:
        self._since, self._at_since = now, None

    def stuck(self, now: float, activity: Activity) -> bool:
        if self._at_since is None:
            self._at_since = activity
        span = now - self._since
        if span < self._limit_s:
            return False
        used = activity.cpu_s - self._at_since.cpu_s
        read = activity.read_bytes - self._at_since.read_bytes
        if used >= self._cpu_s * span or read >= STUCK_BYTES * span:
            self.moved(now)
            return False
        return True


class MemoryWait:
    """After a failed attempt: memory comes back late, wait until MemAvailable stops rising, 60 s at most."""

    def __init__(self, now: float) -> None:
        self._until = now + MEMORY_WAIT_S
        self._highest = 0
        self._rose_at = now

    def over(self, now: float, available_kb: int) -> bool:
        if available_kb > self._highest * 1.01:
            self._highest, self._rose_at = available_kb, now
        return now >= self._until or now - self._rose_at >= 1.5
