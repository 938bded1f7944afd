"""How long a sweep takes: a guess before the first level, then the same scaled by what was seen. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.bench.baseline import Baseline
    from orchestrator.model.bench import Cold, Level, Load

WARM_UP_TOKENS = 16
OPEN_LOOP_S = 60.0  # of a level of arrivals, unless --duration or --requests says otherwise
# Aggregate throughput grows like C ** GAIN: 26 tok/s alone and 144 at 16 on the reference deployment.
GAIN = 0.62


def planned(level: Level, load: Load) -> int | None:
    """How many requests one repeat has; None: as many as fit into the load's duration."""
    if level.rate is not None:
        return load.requests or max(1, math.ceil(level.rate * (load.duration_s or OPEN_LOOP_S)))
    if load.requests:
        return max(load.requests, level.concurrency)  # fewer would not fill it
    if load.duration_s:
        return None
    return max(4 * level.concurrency, 12)  # fewer leave no steady window: docs/bench.md


def alone_s(cold: Cold) -> float | None:
    """Seconds of a request that has the server for itself, by the first one: of its first token, a second at most."""
    return None if cold.failure else cold.e2e_s - cold.ttft_s + min(cold.ttft_s, 1)


def expected_s(level: Level, load: Load, one_s: float | None, baseline: Baseline | None) -> float:
    """Seconds of all repeats of a level; 0 where nothing is known yet."""
    one_s = one_s or 0
    if level.rate is not None:
        return load.repeats * ((planned(level, load) or 0) / level.rate + one_s)
    per_request_s = _by_baseline(level, load, baseline) or one_s / level.concurrency**GAIN
    count, limit_s = planned(level, load), load.duration_s or math.inf
    repeat_s = limit_s if count is None else min(limit_s, count * per_request_s)
    warm_up_s = level.concurrency * per_request_s * min(1, WARM_UP_TOKENS / load.output_tokens)
    return load.repeats * repeat_s + warm_up_s


def _by_baseline(level: Level, load: Load, baseline: Baseline | None) -> float | None:
    """Seconds by which the level advances one request, as the baseline had it."""
    rates = baseline.rows.get(level.name, {}).get("aggregate_tok_s") if baseline else None
    return load.output_tokens / (sum(rates) / len(rates)) if rates else None


@dataclass
class Outlook:
    """The guess for every level by its name, and what became of it."""

    expected: Mapping[str, float]
    done: set[str] = field(default_factory=set)
    _guessed_s: float = 0
    _took_s: float = 0

    @property
    def whole_s(self) -> float:
        return sum(self.expected.values())

    def finish(self, level: str, took_s: float = 0) -> None:
        """*took_s* 0: the level was there already."""
        self.done.add(level)
        if took_s:
            self._guessed_s += self.expected[level]
            self._took_s += took_s

    def left_s(self, elapsed_s: float = 0) -> float | None:
        """What is left of all levels, *elapsed_s* into one; None where nothing is known."""
        left_s = sum(guess for level, guess in self.expected.items() if level not in self.done)
        factor = self._took_s / self._guessed_s if self._guessed_s else 1
        return max(left_s * factor - elapsed_s, 0) if self.whole_s else None
