"""Levels of an ideal server, computed: every request takes the same time, and a slot sends its next at once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from orchestrator.bench.measure import measure
from orchestrator.model.bench import Level, Load, Repeat, Request, ServerDelta

LOAD = Load(prompt_tokens=512, output_tokens=300)


def request(sent_s: float, arrivals_s: list[float], tokens: list[int] | None = None, **more: Any) -> Request:
    """An OK one: a token in each event, unless *tokens* says otherwise."""
    tokens = tokens or [1] * len(arrivals_s)
    known = {"scheduled_s": sent_s, "prompt_tokens": 512, "answer": 0} | more
    return Request(
        sent_s=sent_s, arrivals_s=tuple(arrivals_s), tokens=tuple(tokens), output_tokens=sum(tokens), **known
    )


def closed_loop(
    concurrency: int, waves: int, *, ttft_s: float = 1.0, step_s: float = 0.1, tokens: int = 101
) -> list[Request]:
    """*waves* requests in each slot, one token per step: a request takes ttft_s + (tokens - 1) step_s."""
    length_s = ttft_s + (tokens - 1) * step_s
    return [
        request(
            start_s,
            [start_s + ttft_s + k * step_s for k in range(tokens)],
            slot=slot,
        )
        for wave in range(waves)
        for slot in range(concurrency)
        for start_s in [wave * length_s]
    ]


def failed(sent_s: float = 0.0, failure: str = "disconnect", **more: Any) -> Request:
    return Request(scheduled_s=sent_s, sent_s=sent_s, failure=failure, **more)


def measured(
    requests: list[Request],
    concurrency: int = 1,
    *,
    rate: float | None = None,
    load: Load = LOAD,
    **more: Any,
) -> Repeat:
    last_s = max((one.sent_s for one in requests), default=0.0)
    return measure(requests, Level(concurrency, rate), load, started=1.8e9, last_dispatch_s=last_s, **more)


def healthy(concurrency: int = 4, **server: Any) -> Repeat:
    """A repeat that passes every gate, with *server* differing from what its /metrics should say."""
    repeat = measured(closed_loop(concurrency, max(4, 12 // concurrency)), concurrency)
    told = {
        "generation_tokens": repeat.output_tokens,
        "prefix_queries": repeat.prompt_tokens,
        "prefix_hits": 0,
        "preemptions": 0,
        "requests": repeat.n_ok,
        "running_max": concurrency,
        "waiting_max": 0,
        "waiting_share": 0,
        "in_flight_max": concurrency,
        "samples": 40,
    }
    return replace(repeat, server=ServerDelta(**(told | server)))
