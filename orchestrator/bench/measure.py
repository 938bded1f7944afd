"""Requests → the figures of one repeat, as docs/bench.md defines them. Pure."""

from __future__ import annotations

import math
from collections import Counter
from itertools import chain, pairwise
from statistics import fmean, median
from typing import TYPE_CHECKING

from orchestrator.bench.estimate import spread, weighted
from orchestrator.model.bench import ClientHealth, Goodput, Repeat

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orchestrator.bench.estimate import Weighted
    from orchestrator.model.bench import Level, Load, NodeLoad, Request, ServerDelta

SHORTEST_WINDOW_S = 5
MOST_BINS = 60
MOST_POINTS = 150


def measure(
    requests: Sequence[Request],
    level: Level,
    load: Load,
    *,
    started: float,
    last_dispatch_s: float,
    client: ClientHealth | None = None,
    server: ServerDelta | None = None,
    nodes: Sequence[NodeLoad] = (),
) -> Repeat:
    """Give all figures but the gates. *requests* are all of the level, the failed ones too; warm-up ones are none."""
    good = [request for request in requests if request.ok and request.arrivals_s]
    first_s = min((request.sent_s for request in requests), default=0.0)
    span_s = max((request.arrivals_s[-1] for request in good), default=first_s) - first_s
    window_s = _window(requests, good, level, last_dispatch_s)
    decode = [request for request in good if _n(request) > request.tokens[0]]
    tpot_s = [_tpot_s(request) for request in decode]
    arrivals, (gaps_ms, gaps_tokens) = _arrivals(good), _gaps(good)
    itl_ms = [gap / n for gap, n in zip(gaps_ms, gaps_tokens, strict=True)]
    return Repeat(
        started=started,
        span_s=span_s,
        n_ok=len(good),
        failures=dict(Counter(request.failure for request in requests if not request.ok)),
        failure_details=_details(requests),
        prompt_tokens=sum(request.prompt_tokens for request in good),
        output_tokens=arrivals.total,
        aggregate_tok_s=_rate(arrivals.total, span_s),
        steady_tok_s=_steady(arrivals, window_s),
        window_s=window_s,
        requests_s=_rate(len(good), span_s),
        decode_tok_s=_mean(1 / value for value in tpot_s if value),
        decode_harmonic_tok_s=_harmonic(decode),
        user_tok_s=_mean(_n(request) / _e2e_s(request) for request in good if _e2e_s(request)),
        prefill_tok_s=_prefill(good) if level.concurrency == 1 else None,
        delivered=_delivered(requests, level, window_s or (first_s, _full_until(requests, last_dispatch_s))),
        ttft_s=spread(list(map(_ttft_s, good))),
        ttfot_s=spread([value for value in map(_ttfot_s, good) if value is not None]),
        tpot_ms=spread([1000 * value for value in tpot_s]),
        itl_ms=spread(itl_ms, gaps_tokens),
        icl_ms=spread(gaps_ms),
        e2e_s=spread(list(map(_e2e_s, good))),
        queue_s=spread([request.sent_s - request.scheduled_s for request in good]),
        response_s=spread([request.arrivals_s[-1] - request.scheduled_s for request in good]),
        longest_gap_s=max(gaps_ms) / 1000 if gaps_ms else None,
        tokens_per_event=_rate(arrivals.total, len(arrivals.values)),
        reasoning_tokens=sum(sum(request.tokens[: request.answer]) for request in good),
        attribution=dict(Counter(request.attribution for request in good)),
        goodput=_goodput(requests, level, load, span_s),
        itl_histogram=histogram(weighted(itl_ms, gaps_tokens)),
        timeline=_timeline(requests, arrivals, first_s, span_s),
        client=client or ClientHealth(),
        server=server,
        nodes=tuple(nodes),
    )


def _n(request: Request) -> int:
    return sum(request.tokens)


def _ttft_s(request: Request) -> float:
    return request.arrivals_s[0] - request.sent_s


def _ttfot_s(request: Request) -> float | None:
    """To the first token that is not reasoning; None: there is none."""
    known = request.answer is not None and request.answer < len(request.arrivals_s)
    return request.arrivals_s[request.answer or 0] - request.sent_s if known else None


def _e2e_s(request: Request) -> float:
    return request.arrivals_s[-1] - request.sent_s


def _tpot_s(request: Request) -> float:
    """The first event's tokens are the prefill's. Only for a request with more than those."""
    return (request.arrivals_s[-1] - request.arrivals_s[0]) / (_n(request) - request.tokens[0])


def _arrivals(good: Iterable[Request]) -> Weighted:
    """When each token came."""
    events = [(request.arrivals_s, request.tokens) for request in good]
    return weighted(list(chain(*(at for at, _ in events))), list(chain(*(n for _, n in events))))


def _gaps(good: Iterable[Request]) -> tuple[list[float], list[int]]:
    """Give ms between an event and the one before it in the same request, and the tokens that came with it."""
    gaps_ms: list[float] = []
    tokens: list[int] = []
    for request in good:
        gaps_ms += [1000 * (later - earlier) for earlier, later in pairwise(request.arrivals_s)]
        tokens += request.tokens[1:]
    return gaps_ms, tokens


def _rate(count: float, by: float) -> float | None:
    return count / by if count and by > 0 else None


def _mean(values: Iterable[float]) -> float | None:
    found = list(values)
    return fmean(found) if found else None


def _harmonic(decode: Sequence[Request]) -> float | None:
    tokens = sum(_n(request) - request.tokens[0] for request in decode)
    return _rate(tokens, math.fsum(request.arrivals_s[-1] - request.arrivals_s[0] for request in decode))


def _prefill(good: Iterable[Request]) -> float | None:
    known = (request for request in good if request.prompt_tokens and _ttft_s(request) > 0)
    return _mean(request.prompt_tokens / _ttft_s(request) for request in known)


def _details(requests: Iterable[Request]) -> tuple[str, ...]:
    """Give the first of each class."""
    first: dict[str, str] = {}
    for request in requests:
        if not request.ok:
            first.setdefault(request.failure, f"{request.failure}: {request.detail}".removesuffix(": "))
    return tuple(first.values())


def _window(
    requests: Iterable[Request], good: Sequence[Request], level: Level, last_dispatch_s: float
) -> tuple[float, float] | None:
    """From when every slot has had a first token to the last dispatch; None where that is too short to count."""
    begun: dict[int, float] = {}
    for request in requests:
        if request.arrivals_s:
            begun[request.slot] = min(request.arrivals_s[0], begun.get(request.slot, math.inf))
    if level.rate is not None or not good or len(begun) < level.concurrency:
        return None
    start_s, enough_s = max(begun.values()), max(SHORTEST_WINDOW_S, 2 * median(map(_e2e_s, good)))
    return (start_s, last_dispatch_s) if last_dispatch_s - start_s >= enough_s else None


def _steady(arrivals: Weighted, window_s: tuple[float, float] | None) -> float | None:
    """Tokens after a and until b: those that arrive at a itself were made before it."""
    if window_s is None:
        return None
    start_s, end_s = window_s
    return (arrivals.until(end_s) - arrivals.until(start_s)) / (end_s - start_s)


def _full_until(requests: Iterable[Request], last_dispatch_s: float) -> float:
    """
    When the first slot found nothing left to send: until then the level should be full.

    That may have been just before the last request was sent, where several slots ended together; one that ended long
    before has broken, and is missed up to there.
    """
    last: dict[int, float] = {}
    for request in requests:
        if request.arrivals_s:
            last[request.slot] = max(request.arrivals_s[-1], last.get(request.slot, 0.0))
    return max(last_dispatch_s, min(last.values(), default=0.0))


def _delivered(requests: Iterable[Request], level: Level, span_s: tuple[float, float]) -> float | None:
    """Requests in flight on average, by Little's law: the sum of E2E that lies in *span_s*, over its length."""
    if level.rate is not None or span_s[1] <= span_s[0]:
        return None
    return math.fsum(_overlap(request, *span_s) for request in requests) / (span_s[1] - span_s[0])


def _overlap(request: Request, start_s: float, end_s: float) -> float:
    """Seconds of it that *request* was in flight, as far as tokens came."""
    if not request.arrivals_s:
        return 0.0
    return max(0.0, min(request.arrivals_s[-1], end_s) - max(request.sent_s, start_s))


def _goodput(requests: Sequence[Request], level: Level, load: Load, span_s: float) -> Goodput | None:
    if not load.slo or not requests:
        return None
    met = sum(_meets(request, level, load) for request in requests)
    return Goodput(met / span_s if span_s > 0 else 0.0, met / len(requests))


def _meets(request: Request, level: Level, load: Load) -> bool:
    """In an open loop the clock of a request runs from when it was due."""
    if not request.ok or not request.arrivals_s:
        return False
    from_s = request.sent_s if level.rate is None else request.scheduled_s
    found = {
        "ttft": request.arrivals_s[0] - from_s,
        "tpot": _tpot_s(request) if _n(request) > request.tokens[0] else 0.0,
        "e2e": request.arrivals_s[-1] - from_s,
    }
    return all(found[name] <= limit for name, limit in load.slo.items())


def histogram(values_ms: Weighted) -> tuple[tuple[float, int], ...]:
    """Give (upper edge in ms, tokens) of neighbouring bins, equally wide on a log scale and as fine as 60 allow."""
    if not values_ms.total:
        return ()
    low, high = (
        math.log10(max(values_ms.values[end], 0.001)) for end in (0, -1)
    )  # 1 us: nothing is told apart below
    per_decade = next(n for n in (200, 100, 50, 20, 10, 5, 2) if n * (high - low) <= MOST_BINS - 2)
    first, last = math.floor(per_decade * low), math.floor(per_decade * high)
    edges = [10 ** ((k + 1) / per_decade) for k in range(first, last + 1)]
    return tuple(zip(edges, _between(values_ms, edges), strict=True))


def _between(values: Weighted, edges: Sequence[float]) -> list[int]:
    """What lies up to each edge and above the one before; the last edge is above all."""
    ends = [0, *map(values.until, edges[:-1]), values.total]
    return [later - earlier for earlier, later in pairwise(ends)]


def _timeline(
    requests: Iterable[Request], arrivals: Weighted, first_s: float, span_s: float
) -> tuple[tuple[float, float, float], ...]:
    """Give (start in seconds, tok/s, mean requests in flight) of slices of one length."""
    if span_s <= 0:
        return ()
    width_s = _width_s(span_s)
    count = math.ceil(span_s / width_s)
    tokens = _between(arrivals, [first_s + (k + 1) * width_s for k in range(count)])
    busy_s = [0.0] * count
    for request in requests:
        _add_busy(busy_s, request, first_s, width_s)
    return tuple((k * width_s, tokens[k] / width_s, busy_s[k] / width_s) for k in range(count))


def _width_s(span_s: float) -> float:
    """1, 2 or 5 times a power of ten."""
    least_s = max(span_s / MOST_POINTS, 1e-6)
    power = 10.0 ** math.floor(math.log10(least_s))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least_s)


def _add_busy(busy_s: list[float], request: Request, first_s: float, width_s: float) -> None:
    if not request.arrivals_s:
        return
    first, last = (int((at - first_s) / width_s) for at in (request.sent_s, request.arrivals_s[-1]))
    for k in range(first, min(last + 1, len(busy_s))):
        busy_s[k] += _overlap(request, first_s + k * width_s, first_s + (k + 1) * width_s)
