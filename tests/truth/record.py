"""The truth of one request, and of many."""

from __future__ import annotations

import math
from array import array
from itertools import pairwise
from typing import Any

HARMLESS = {"stall", "slow_headers"}  # such a stream is late, and whole


class Record:
    """Moments are seconds of CLOCK_MONOTONIC (`time.perf_counter`), taken right before send(); None: it never came so far."""

    __slots__ = (
        *("number", "path", "stream", "connection", "status", "fault", "cold", "whole", "client_gone"),
        *("prompt_tokens", "prompt_hash", "asked", "n", "sent", "in_flight", "blocked", "late_max_s"),
        *("t_conn", "t_recv", "t_head", "t_first", "t_last", "t_end", "chunks", "tokens"),
    )

    def __init__(self, **known: Any) -> None:
        for name in self.__slots__:
            setattr(self, name, None)
        self.chunks, self.tokens = array("d"), array("H")
        self.cold = self.whole = self.client_gone = False
        self.sent = self.blocked = self.late_max_s = 0
        for name, value in known.items():
            setattr(self, name, value)

    def as_json(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in self.__slots__}
        return plain | {"chunks": list(self.chunks), "tokens": list(self.tokens)}


def percentile(values: list[float], percent: float) -> float:
    """Linear between the two nearest, as numpy's default."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * percent / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def spread(values: list[float], factor: float = 1) -> dict[str, float] | None:
    if not values:
        return None
    shown = {f"p{percent}": factor * percentile(values, percent) for percent in (50, 90, 95, 99)}
    mean = factor * math.fsum(values) / len(values)
    return {"n": len(values), "mean": mean, "min": factor * min(values), "max": factor * max(values)} | shown


def summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures of *records* (as of `Truth.requests()`) by the definitions of docs/bench.md; whole streams have the latencies."""
    streams = [one for one in records if one["stream"] and one["t_first"]]
    whole = [one for one in streams if one["whole"]]
    shown: dict[str, Any] = {"requests": len(records), "streams": len(streams), "whole": len(whole)}
    if not whole:
        return shown
    began, ended = min(one["t_recv"] for one in streams), max(one["t_last"] for one in whole)
    tokens = sum(one["sent"] for one in whole)
    gaps = [(gap, one["tokens"][k + 1]) for one in whole for k, gap in enumerate(_gaps(one["chunks"]))]
    decode = [one for one in whole if one["sent"] > one["tokens"][0]]
    tpot = [(one["t_last"] - one["t_first"]) / (one["sent"] - one["tokens"][0]) for one in decode]
    return shown | {
        "tokens": tokens,
        "events": sum(len(one["chunks"]) for one in whole),
        "span_s": ended - began,
        "aggregate_tok_s": tokens / (ended - began) if ended > began else None,
        "ttft_s": spread([one["t_first"] - one["t_recv"] for one in whole]),
        "e2e_s": spread([one["t_last"] - one["t_recv"] for one in whole]),
        "tpot_ms": spread(tpot, 1e3),
        "decode_tok_s": math.fsum(1 / one for one in tpot if one) / len(tpot) if tpot else None,
        "itl_ms": spread([gap / n for gap, n in gaps for _ in range(n)], 1e3),
        "icl_ms": spread([gap for gap, _ in gaps], 1e3),
        "distinct_prompts": len({one["prompt_hash"] for one in records}),
        "prompt_tokens": sum(one["prompt_tokens"] for one in whole),
        "late_max_ms": 1e3 * max(one["late_max_s"] for one in streams),
        "blocked_writes": sum(one["blocked"] for one in streams),
    }


def _gaps(moments: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(moments)]
