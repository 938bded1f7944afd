"""What bounds a deployment, in words: what was measured apart from what is assumed, and no claim beyond both. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from orchestrator.bench.roofline import ALL_REDUCE_S
from orchestrator.bench.shape import last_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator.bench.baseline import Baseline
    from orchestrator.model.bench import LevelResult, Limit, Result, Shape

FAR = 0.05  # under this share of the memory model it is another machine, or a toy: the model explains nothing
BOUND, SHARED = 0.8, 0.5  # of it: memory is what bounds, or one of two things


def diagnose(
    result: Result, context: Sequence[Baseline] = (), baseline: Baseline | None = None
) -> tuple[str, ...]:
    """Give the paragraph, a sentence or two in each string; *context*: rows that are mentioned beside it."""
    closed = [
        level
        for level in result.levels
        if level.valid and level.level.rate is None and "aggregate_tok_s" in level.summary
    ]
    measured = sorted(closed, key=lambda level: level.level.concurrency)
    points = [point for level in measured if (point := _point(level, result))]
    seen = (*_seen(result, measured, baseline), *_beside(result, measured, context, bounded=bool(points)))
    if not points:
        return (*_no_model(result, measured), *seen)
    if max(point.share for point in points) < FAR:
        return (_far(points[-1]), *_seen(result, measured, baseline))  # a toy: beside what would it be put?
    if impossible := [point for point in points if point.impossible]:
        return (_impossible(impossible[-1]), *seen, _assumed(points[0], result))
    return (*_low(points[0]), *_high(points), *_faster(points), *seen, _assumed(points[0], result))


@dataclass(frozen=True)
class _Point:
    """A level against its limit. Times of an engine step, in ms: as measured, and for reading memory alone."""

    level: LevelResult
    limit: Limit
    shape: Shape
    nodes: int
    guessed: bool  # how many nodes there are is not known
    step_ms: float
    read_ms: float

    @property
    def concurrency(self) -> int:
        return self.level.level.concurrency

    @property
    def share(self) -> float:
        """Of the memory model, while decoding."""
        return self.read_ms / self.step_ms

    @property
    def impossible(self) -> bool:
        """Fewer bytes were read than one request needs."""
        implied = self.limit.implied_experts
        return self.share > 1 and (implied is None or implied < self.shape.experts_per_token)

    def told(self, what: str) -> str:
        """*what*: that which is read."""
        return (
            f"Measured: at concurrency {self.concurrency} a step takes {_ms(self.step_ms)}; by the memory model, "
            f"reading {what} takes {_ms(self.read_ms)} ({_percent(self.share)} of it)"
        )


def _point(level: LevelResult, result: Result) -> _Point | None:
    limit, shape = level.limit, result.shape
    share = (limit.decode_efficiency or limit.efficiency) if limit else None
    if limit is None or shape is None or not share:
        return None
    known = result.deployment.tensor_parallel or len(result.deployment.nodes)
    nodes = known or 1
    read_ms = limit.bytes_per_step / (nodes * result.bandwidth_gb_s * 1e6)
    return _Point(level, limit, shape, nodes, not known, read_ms / share, read_ms)


def _no_model(result: Result, measured: Sequence[LevelResult]) -> Iterator[str]:
    if not measured:
        yield "Without a valid level of --levels nothing is said of what bounds the deployment."
    elif result.shape is None:
        name = result.deployment.root or result.deployment.model
        yield (
            f"How near the memory limit that is cannot be said: the size of {name} is not known (no config.json "
            "of it was read, and inventories/bench/models.yaml does not list it)."
        )


def _far(point: _Point) -> str:
    return (
        f"{point.told('memory')}: something else bounds this deployment, and the model says no more about it."
    )


def _impossible(point: _Point) -> str:
    return f"{point.told('memory')}, which cannot be: bytes per weight, bandwidth or nodes are other than assumed."


def _low(point: _Point) -> Iterator[str]:
    yield f"{point.told(f'{point.limit.bytes_per_step / 1e9:.1f} GB')}{_bound(point)}."
    if point.share >= BOUND:
        return
    calls, pair = 2 * point.shape.layers, point.nodes > 1
    assumed = (
        f"{calls} all-reduces would be {_ms(calls * ALL_REDUCE_S * 1e3)}, as assumed below, and "
        if pair
        else ""
    )
    yield (
        f"The other {_ms(point.step_ms - point.read_ms)} are not memory traffic at that bandwidth; {assumed}"
        f"{'slower all-reduces, ' if pair else ''}launches of kernels, the CPU or the scheduler may be the rest."
    )
    inside, tpot = _server(point.level, "itl_mean_ms"), point.level.summary.get("tpot_mean_ms")
    if inside and tpot:
        where = "in the engine" if abs(tpot.mean - inside) < 0.1 * tpot.mean else "partly outside the engine"
        clocks = f"{_ms(inside)} per token by the server's clock, {_ms(tpot.mean)} by the client's"
        yield f"Measured: {clocks}, so it is {where}."


def _bound(point: _Point) -> str:
    if point.share > 1 and point.guessed:
        return ": there is more than the one node that is assumed, or requests share experts"
    if point.share > 1:
        return f": requests share experts, about {point.limit.implied_experts or 0:.0f} of them per layer are read"
    if point.share >= BOUND:
        return ": memory bounds it"
    return ": not memory alone bounds it" if point.share >= SHARED else ": memory is the lesser part"


def _high(points: Sequence[_Point]) -> Iterator[str]:
    if len(points) == 1:
        return
    top, before = points[-1], points[-2]
    limit = top.limit
    experts = (
        ""
        if limit.unique_experts is None
        else f" ({limit.unique_experts:.0f} of {top.shape.experts} experts expected)"
    )
    yield f"{top.told(f'{limit.bytes_per_step / 1e9:.1f} GB{experts}')}{_bound(top)}."
    if limit.efficiency and limit.efficiency < 0.95 * top.share:
        ends = "" if "steady_tok_s" in top.level.summary else ", and the run's beginning and end"
        aggregate = f"The aggregate, {_aggregate(top.level):.4g} tok/s, is {_percent(limit.efficiency)}"
        yield f"{aggregate}: the rest is waiting for first tokens{ends}."
    growth = _aggregate(top.level) / _aggregate(before.level) - 1
    little = "" if growth > 0.05 else ": more requests at once bring little but waiting"
    span = f"from {before.concurrency} to {top.concurrency}"
    yield f"Measured: {span} the aggregate changes by {100 * growth:+.0f} %{little}."


def _faster(points: Sequence[_Point]) -> Iterator[str]:
    low, top = points[0], points[-1]
    accepted = _server(low.level, "acceptance_length")
    drafts = (
        f"more accepted drafts ({accepted:.1f} tokens per step now)"
        if accepted
        else "speculation (12 to 45 %)"
    )
    ways = f"fewer bytes per token, such as 4-bit weights, {drafts}, or more bandwidth"
    if low.share < BOUND:
        gain = f"closing that gap is worth up to {1 / low.share:.1f} times; past it, "
        yield f"To be faster at {low.concurrency}: {gain}{ways}."
    elif low.share <= 1:
        yield f"To be faster at {low.concurrency}: {ways}."
    if top is not low and top.share >= BOUND and not top.guessed:
        yield f"To be faster at {top.concurrency}: no gap is left to close; fewer bytes per weight, or more nodes."


def _seen(result: Result, measured: Sequence[LevelResult], baseline: Baseline | None) -> Iterator[str]:
    """What counters, logs and nodes tell beside the rates."""
    if measured:
        yield from _cold(result, measured[0], baseline)
        yield from _waiting(measured[-1])
        yield from _fabric(result, measured[-1])
    repeats = [repeat for level in measured for repeat in level.repeats]
    nodes = [node for repeat in repeats for node in repeat.nodes if node.throttled]
    for name in sorted({node.node for node in nodes}):
        reasons = sorted({reason for node in nodes if node.node == name for reason in node.throttled})
        yield f"Measured: {name} throttled its GPU ({', '.join(reasons)}), so that its clock may bound it as well."


def _cold(result: Result, lowest: LevelResult, baseline: Baseline | None) -> Iterator[str]:
    cold, ttft, level = result.cold, lowest.summary.get("ttft_mean_s"), lowest.level
    if cold is None or cold.failure or ttft is None or cold.ttft_s < 2 * ttft.mean + 1:
        return
    possible = "no log line tells why: JIT compilation, graph capture or NCCL's set-up are possible"
    at_once = "" if level.concurrency == 1 else f", {level.concurrency} at once,"
    theirs = baseline.cold_ttft_s if baseline else None
    theirs_too = "" if theirs is None or baseline is None else f" ({theirs:.1f} s in {baseline.name})"
    yield (
        f"Measured: the very first request waited {cold.ttft_s:.1f} s for its first token{theirs_too}, later ones"
        f"{at_once} {ttft.mean:.2f} s; {f'by the log, {cold.why}' if cold.why else possible}."
    )


def _waiting(top: LevelResult) -> Iterator[str]:
    queued, ttft = _server(top, "queue_mean_s"), top.summary.get("ttft_mean_s")
    if queued and ttft and queued > max(0.1, 0.1 * ttft.mean):
        of = f"{queued:.2f} s of the {ttft.mean:.2f} s to the first token are the server's queue"
        yield f"Measured: at concurrency {top.level.concurrency} {of}."
    full = _server(top, "kv_usage_max")
    if full and full > 0.9:
        yield f"Measured: the KV cache was {_percent(full)} full, so that more or longer requests would wait."


def _fabric(result: Result, top: LevelResult) -> Iterator[str]:
    """Whether the traffic between the nodes is what tensor parallelism needs, and which way it took."""
    repeat, shape, ranks = top.repeats[-1], result.shape, result.deployment.tensor_parallel or 0
    nodes = [node for node in repeat.nodes if node.rdma_bytes is not None]
    tokens = repeat.prompt_tokens + repeat.output_tokens
    if shape is None or not shape.hidden or ranks < 2 or ranks != len(nodes) or not tokens:
        return
    # Two all-reduces per layer of 16 bits per value; a ring sends 2 (n - 1) / n of that, and receives as much.
    wanted = tokens * 2 * shape.layers * 2 * shape.hidden * 4 * (ranks - 1) / ranks
    rdma = fmean(node.rdma_bytes or 0 for node in nodes)
    if rdma < 0.1 * wanted and fmean(node.netdev_bytes or 0 for node in nodes) > 0.5 * wanted:
        yield "Measured: the nodes talk over TCP sockets, not RDMA, which makes every all-reduce slower."
    else:
        per_token = f"{rdma / tokens / 1e6:.2f} MB per token pass each node's RDMA ports"
        yield f"Measured: {per_token}, {rdma / wanted:.1f} times what all-reduces of this shape need."


def _beside(
    result: Result, measured: Sequence[LevelResult], context: Sequence[Baseline], *, bounded: bool
) -> Iterator[str]:
    """
    Rows of the same model, and of as many nodes: never comparable, so with their caveats.

    Another model is mentioned only where the memory model is there to hold both against (*bounded*).
    """
    here = result.deployment
    for row, lowest in ((row, measured[0]) for row in context if measured):
        same = last_name(row.model) in map(last_name, (here.root, here.model))
        theirs, ours = row.rows.get(lowest.level.name, {}).get("aggregate_tok_s"), _aggregate(lowest)
        if theirs and (same or (bounded and row.tensor_parallel == here.tensor_parallel)):
            what = f"{'the same model' if same else row.model} on {row.engine}"
            drafts = f" with {row.speculative} speculation" if row.speculative else ""
            reached = (
                f"{fmean(theirs):.0f} tok/s at {lowest.level.name}, {fmean(theirs) / ours:.1f} times this"
            )
            yield f"For context, not comparable: {what}{drafts} is said to reach {reached}; {row.caveat}."


def _assumed(point: _Point, result: Result) -> str:
    experts = ", each token picks its experts independently" if point.shape.experts else ""
    network = f", {ALL_REDUCE_S * 1e6:.0f} us per all-reduce" if point.nodes > 1 else ""
    nodes = f"{point.nodes} nodes, each" if point.nodes > 1 else "1 node"
    guessed = " (how many there are is not known)" if point.guessed else ""
    speed = f"{nodes}{guessed} with {result.bandwidth_gb_s:g} GB/s (--bandwidth)"
    return f"Assumed: {speed}{network}{experts}; of the model: {point.shape.source}."


def _aggregate(level: LevelResult) -> float:
    """Of the steady window where there is one, as in the table."""
    return level.summary.get("steady_tok_s", level.summary["aggregate_tok_s"]).mean


def _server(level: LevelResult, name: str) -> float | None:
    """The mean over the repeats in which the server told it."""
    values = [getattr(repeat.server, name) for repeat in level.repeats if repeat.server]
    known = [value for value in values if value]
    return fmean(known) if known else None


def _ms(value: float) -> str:
    return f"{value:.1f} ms" if value < 99.95 else f"{value:.0f} ms"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
