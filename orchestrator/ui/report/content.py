"""What a report says, whichever form it has: facts, tables, definitions. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from orchestrator.ui.report.table import number, percent, rows, shown
from orchestrator.ui.report.text import cold, of_load

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.model.bench import LevelResult, NodeLoad, Result, Target

DEFINED = "docs/bench.md"
DEFINITIONS = {
    "C": "requests in flight, all the time: one ends, the next one is sent. 0.5/s: so many arrive per second",
    "agg tok/s": "tokens of complete requests that arrive per second, of all requests together: over the whole run, or "
    "while every slot is busy (the steady window)",
    "±95 %": "half of the interval in which the mean over the repeats lies with 95 % confidence",
    "/user tok/s": "the rate at which one request gets tokens after its first: the mean of 1 / TPOT (time per token)",
    "TTFT": "time to first token: from sending a request to its first token of whatever kind; mean and percentiles",
    "ITL": "inter-token latency: the time between two events of an answer over the tokens that the later one brought",
    "E2E": "end to end: from sending a request to its last token, mean",
    "response": "the same from when the request was due to arrive: with --rate, a late sending counts",
    "goodput": "the share of requests that met every objective of --slo",
    "of model": "agg tok/s over what the memory could give if every step read its bytes at the full bandwidth",
    "vs baseline": "change of the tok/s over the whole run, in result.json aggregate_tok_s; negative is worse",
    "ok/failed": "a request is ok only if its stream was whole and had every token; failed ones are in no figure",
}


@dataclass(frozen=True)
class Table:
    """*rows* are as long as *headings*; a row of two cells is a name and a sentence in the place of figures."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def heading(result: Result) -> str:
    return f"{result.deployment.model or result.target.url}: throughput and latency"


def facts(result: Result) -> dict[str, str]:
    """Give what was measured, how and by what; what is not known is left out."""
    d, load = result.deployment, result.load
    found = {
        "model": f"{d.model} ({d.root})" if d.root and d.root != d.model else d.model,
        "quantisation": d.quant,
        "engine": f"{d.engine} {d.engine_version}".strip(),
        "image": f"{d.image} ({d.image_id})" if d.image_id else d.image,
        "arguments": shlex.join(d.args),
        "nodes": ", ".join(d.nodes) + (f", tensor parallel {d.tensor_parallel}" if d.tensor_parallel else ""),
        "transport": d.transport,
        "longest context": f"{d.max_model_len} tokens" if d.max_model_len else "",
        "deployment": f"{d.name} {d.release}".strip(),
        "load": f"{of_load(load)}, /v1/{'chat/' if load.endpoint == 'chat' else ''}completions, seed {load.seed}",
        "objectives": ", ".join(f"{name} {limit:g} s" for name, limit in load.slo.items()),
        "first request": cold(result).removeprefix("cold request: "),
        "asked at": _way(result.target),
        "memory model": _model(result),
        "measured": f"{datetime.fromtimestamp(result.started, timezone.utc):%Y-%m-%d %H:%M} UTC, "
        f"run {result.run_id}, spark-deploy {result.tool_version}, definitions {result.definitions}",
    }
    return {name: text for name, text in found.items() if text.strip(" ,")}


def command(result: Result) -> str:
    return shlex.join(("spark-deploy", *result.command))


def tables(result: Result) -> tuple[Table, ...]:
    """Give all tables that have a row; the first is that of the levels."""
    made = (_levels(result), _memory(result), _verdict(result), _server(result), _nodes(result))
    return tuple(_compact(table) for table in made if table.rows)


def _compact(table: Table) -> Table:
    """Leave out columns in which nothing is known."""
    full = [row for row in table.rows if len(row) == len(table.headings)]
    kept = [k for k in range(len(table.headings)) if not full or any(row[k] not in ("-", "") for row in full)]

    def cut(row: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(row[k] for k in kept) if len(row) == len(table.headings) else row

    return Table(table.title, cut(table.headings), tuple(map(cut, table.rows)))


def _way(target: Target) -> str:
    rtt = "" if target.rtt_ms is None else f", {target.rtt_ms:.2g} ms away"
    added = "" if target.added_ms is None else f", which adds {target.added_ms:.2g} ms"
    return f"{target.url}{rtt}" + (
        f", through the SSH connection of {target.through}{added}" if target.through else ""
    )


def _model(result: Result) -> str:
    shape = result.shape
    if shape is None:
        return ""
    moe = f", {shape.experts_per_token} of {shape.experts} experts a token" if shape.experts else ""
    size = f"{shape.parameters / 1e9:.4g} B parameters, {shape.active / 1e9:.3g} B active{moe}"
    return f"{size}; {result.bandwidth_gb_s:g} GB/s a node" + (
        f"; from {shape.source}" if shape.source else ""
    )


def _levels(result: Result) -> Table:
    found = rows(result)
    columns = shown(found)
    cells = (
        tuple(column.cell(row) for column in columns) if row["status"] == "ok" else (row["level"], "INVALID")
        for row in found
    )
    return Table("Levels", tuple(column.heading for column in columns), tuple(cells))


def _memory(result: Result) -> Table:
    heads = (
        "C",
        "GB a step",
        "experts",
        "model tok/s",
        "with all-reduce",
        "hard limit",
        "agg of model",
        "decode of model",
        "agg of limit",
    )
    return Table("Against the memory", heads, tuple(_limit(level) for level in result.levels if level.limit))


def _limit(level: LevelResult) -> tuple[str, ...]:
    limit = level.limit
    if limit is None or not level.valid:
        return (level.level.name, "INVALID")
    rates = (limit.model_tok_s, limit.with_all_reduce_tok_s, limit.hard_tok_s)
    of_limit = None if limit.efficiency is None else limit.efficiency * limit.model_tok_s / limit.hard_tok_s
    shares = (percent(limit.efficiency), percent(limit.decode_efficiency), percent(of_limit))
    return (
        level.level.name,
        number(limit.bytes_per_step / 1e9),
        number(limit.unique_experts),
        *map(number, rates),
        *shares,
    )


def _verdict(result: Result) -> Table:
    valid = {level.level.name for level in result.levels if level.valid}
    found = [one for one in result.verdict.metrics if one.level in valid] if result.verdict else []
    cells = (
        (
            metric.level,
            metric.metric,
            number(metric.new),
            number(metric.baseline),
            percent(metric.change, signed=True),
            "-"
            if metric.low is None
            else " to ".join(percent(end, signed=True) for end in (metric.low, metric.high)),
            percent(metric.floor),
            metric.status,
        )
        for metric in found
    )
    heads = ("C", "figure", "new", "baseline", "change", "95 % bounds", "floor", "verdict")
    return Table("Against the baseline (negative is worse)", heads, tuple(cells))


def _server(result: Result) -> Table:
    """Give the worst of all repeats, by the server's own counters, and how late the client was."""
    cells = []
    for level in result.levels:
        servers = [repeat.server for repeat in level.repeats if repeat.server]
        hits = [
            s.prefix_hits / s.prefix_queries
            for s in servers
            if s.prefix_hits is not None and s.prefix_queries
        ]
        figures = (
            number(_worst(s.queue_mean_s for s in servers)),
            percent(_worst(hits)),
            _count(_worst(s.waiting_max for s in servers)),
            _count(_worst(s.preemptions for s in servers)),
            percent(_worst(s.kv_usage_max for s in servers)),
            number(_worst(s.acceptance_length for s in servers)),
            number(_worst(repeat.client.lag_p99_ms for repeat in level.repeats)),
        )
        if set(figures) != {"-"}:
            cells.append((level.level.name, *figures))
    heads = (
        "C",
        "queue s",
        "prefix hits",
        "waiting",
        "preempted",
        "KV use",
        "accepted/step",
        "client lag ms",
    )
    return Table("The server and the client (worst repeat)", heads, tuple(cells))


def _nodes(result: Result) -> Table:
    heads = ("C", "node", "GPU MHz", "°C max", "W mean", "busy", "RDMA GB", "throttled")
    cells = (
        (level.level.name, *_node(node))
        for level in result.levels
        for r in level.repeats[:1]
        for node in r.nodes
    )
    return Table("The nodes (first repeat)", heads, tuple(cells))


def _node(node: NodeLoad) -> tuple[str, ...]:
    busy, rdma = node.gpu_utilisation_pct.mean, node.rdma_bytes
    return (
        node.node,
        number(node.gpu_clock_mhz.mean),
        number(node.gpu_temperature_c.maximum),
        number(node.gpu_power_w.mean),
        percent(None if busy is None else busy / 100),
        number(None if rdma is None else rdma / 1e9),
        ", ".join(node.throttled) or "no",
    )


def _worst(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
