"""vLLM's /metrics (0.8 to 0.33) → the numbers that we need, and their differences over one repeat. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.model.bench import ServerDelta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

# Ours -> theirs, without "vllm:" and with or without "_total", the newest first: only the first that is there counts,
# as 0.9 to 0.12 give old and new names side by side (vllm/v1/metrics/loggers.py, vllm/v1/spec_decode/metrics.py).
_COUNTERS = {
    "generation_tokens": ("generation_tokens",),
    "prompt_tokens": ("prompt_tokens",),
    "prefix_queries": ("prefix_cache_queries", "gpu_prefix_cache_queries"),
    "prefix_hits": ("prefix_cache_hits", "gpu_prefix_cache_hits"),
    "external_hits": ("external_prefix_cache_hits",),  # in another cache, by a KV connector
    "preemptions": ("num_preemptions",),
    "requests": ("request_success",),
    "drafts": ("spec_decode_num_drafts",),
    "draft_tokens": ("spec_decode_num_draft_tokens",),
    "accepted_tokens": ("spec_decode_num_accepted_tokens",),
}
_HISTOGRAMS = {
    "ttft": ("time_to_first_token_seconds",),
    "queue": ("request_queue_time_seconds",),
    "prefill": ("request_prefill_time_seconds",),
    "decode": ("request_decode_time_seconds",),
    "itl": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
    "iteration": ("iteration_tokens_total",),
}
_TOTALS = {
    name: [one + end for one in names for end in ("_total", "")] for name, names in _COUNTERS.items()
} | {
    f"{name}_{part}": [f"{one}_{part}" for one in names]
    for name, names in _HISTOGRAMS.items()
    for part in ("sum", "count")
}
_LOADS = {"running": ["num_requests_running"], "waiting": ["num_requests_waiting"]}
_CACHE = {"kv": ["kv_cache_usage_perc", "gpu_cache_usage_perc"]}
_LABELS = r'(?:\{(?:[^"}\n]|"(?:[^"\\\n]|\\.)*")*\})?'  # a value may hold commas, braces and escaped quotes


@dataclass(frozen=True)
class Counters:
    """Totals since the server started, by our names and summed over engines and labels; only what it counts."""

    values: Mapping[str, float] = field(default_factory=dict)

    @property
    def generation_tokens(self) -> float | None:
        return self.values.get("generation_tokens")


@dataclass(frozen=True)
class Gauges:
    """One look. *kv* is 0 to 1: the fullest engine's."""

    running: float | None = None
    waiting: float | None = None
    kv: float | None = None

    @property
    def in_flight(self) -> float | None:
        return None if self.running is None else self.running + (self.waiting or 0)


def parse(text: str) -> Counters:
    """Read a page; that of another server than vLLM has nothing of it."""
    return Counters(_read(text, _TOTALS))


def gauges(text: str) -> Gauges:
    return Gauges(**_read(text, _LOADS), **_read(text, _CACHE, max))


def delta(before: Counters | None, after: Counters | None, samples: Sequence[Gauges]) -> ServerDelta | None:
    """Give the differences, and the maxima of *samples*; None: there is nothing of either."""
    rises = _rises(before, after)
    running, waiting = (_known(one.running for one in samples), _known(one.waiting for one in samples))
    if not rises and not running:
        return None
    restarted = any(rise < 0 for rise in rises.values())
    return ServerDelta(
        **_differences({} if restarted else rises),
        kv_usage_max=max(_known(one.kv for one in samples), default=None),
        running_max=max(running, default=None),
        waiting_max=max(waiting, default=None),
        waiting_share=sum(count > 0 for count in waiting) / len(waiting) if waiting else None,
        in_flight_max=max(_known(one.in_flight for one in samples), default=None),
        restarted=restarted,
        samples=len(running),
    )


def _read(
    text: str, names: Mapping[str, Sequence[str]], of: Callable[[list[float]], float] = math.fsum
) -> dict[str, float]:
    """Give for each of ours what *of* makes of the finite values of the first name that is there."""
    wanted = "|".join(one for theirs in names.values() for one in theirs)
    found: dict[str, list[float]] = {}
    for name, value in re.findall(rf"^vllm:({wanted}){_LABELS}[ \t]+(\S+)", text, re.MULTILINE):
        number = _number(value)
        if math.isfinite(number):
            found.setdefault(name, []).append(number)
    first = {name: next((one for one in theirs if one in found), "") for name, theirs in names.items()}
    return {name: of(found[one]) for name, one in first.items() if one}


def _number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return math.nan


def _rises(before: Counters | None, after: Counters | None) -> dict[str, float]:
    """A counter that comes up only while we measure began at 0."""
    if before is None or after is None:
        return {}
    return {name: now - before.values.get(name, 0) for name, now in after.values.items()}


def _differences(rises: Mapping[str, float]) -> dict[str, float | None]:
    def mean(name: str, factor: float = 1) -> float | None:
        count = rises.get(f"{name}_count")
        return factor * rises.get(f"{name}_sum", 0.0) / count if count else None

    hits = rises.get("prefix_hits")
    return {name: rises.get(name) for name in _COUNTERS if name != "external_hits"} | {
        "prefix_hits": None if hits is None else hits + rises.get("external_hits", 0),
        "ttft_mean_s": mean("ttft"),
        "queue_mean_s": mean("queue"),
        "prefill_mean_s": mean("prefill"),
        "decode_mean_s": mean("decode"),
        "itl_mean_ms": mean("itl", 1000),
        "iterations": rises.get("iteration_count"),
        "iteration_tokens": rises.get("iteration_sum"),
    }


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
