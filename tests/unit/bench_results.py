"""The reference curve as a finished result, with small fixed noise: what reports are tested with."""

import random
from dataclasses import replace
from functools import cache

from orchestrator.bench.measure import measure
from orchestrator.bench.summary import summed
from orchestrator.model.bench import (
    Cold,
    Deployment,
    Gate,
    Level,
    LevelResult,
    Limit,
    Load,
    MetricVerdict,
    Request,
    Result,
    ServerDelta,
    Shape,
    Target,
    Verdict,
)

NINE = 1_796_072_400.0  # 2026-11-30 21:00:00 UTC
# Concurrency: decode tok/s of one request, TTFT in s, and the aggregate that was published.
CURVE = {
    1: (27.0, 0.48, 26.0),
    2: (21.0, 0.86, 41.0),
    4: (19.0, 1.48, 71.0),
    8: (12.0, 2.29, 94.0),
    16: (10.0, 3.20, 144.0),
}
# Bytes a step, unique experts, the memory model, with all-reduces, the hard limit.
LIMITS = {
    1: (10.0e9, 8.0, 54.6, 48.3, 54.6),
    2: (13.5e9, 15.8, 80.9, 73.7, 109.0),
    4: (20.2e9, 30.5, 108.0, 102.0, 218.0),
    8: (32.3e9, 57.4, 135.0, 130.0, 437.0),
    16: (52.4e9, 102.0, 167.0, 163.0, 874.0),
}
LOAD = Load(repeats=3)


def requests(concurrency, seed):
    """A closed loop of three waves: every slot sends its next request as soon as its last one has ended."""
    chance = random.Random(f"{concurrency} {seed}")  # noqa: S311
    decode, ttft, _ = CURVE[concurrency]
    scale = 1 + chance.gauss(0, 0.004)
    found = []
    for slot in range(concurrency):
        now = 0.0
        for _ in range(max(3, 12 // concurrency)):
            first = now + ttft * chance.uniform(0.9, 1.15)
            arrivals = [first]
            for _ in range(LOAD.output_tokens - 1):
                arrivals.append(arrivals[-1] + scale / decode * chance.lognormvariate(0, 0.08))
            found.append(
                Request(
                    now,
                    now + 0.0001,
                    tuple(round(at, 6) for at in arrivals),
                    (1,) * LOAD.output_tokens,
                    0,
                    LOAD.prompt_tokens,
                    LOAD.output_tokens,
                    finish_reason="length",
                    slot=slot,
                )
            )
            now = arrivals[-1] + 0.001
    return tuple(sorted(found, key=lambda request: request.sent_s))


@cache
def repeat(concurrency, number):
    level = Level(concurrency)
    asked = requests(concurrency, number)
    tokens = len(asked) * LOAD.output_tokens
    server = ServerDelta(
        generation_tokens=tokens, prefix_queries=512 * len(asked), prefix_hits=0, preemptions=0, samples=90
    )
    last_s = max(request.sent_s for request in asked)
    measured = measure(asked, level, LOAD, started=NINE + 60 * number, last_dispatch_s=last_s, server=server)
    gates = (
        Gate(
            "failures",
            ok=True,
            text=f"0 of {len(asked)} requests failed, wanted 1 % or fewer",
            value=0,
            limit=0.01,
        ),
        Gate(
            "prefix-hits",
            ok=True,
            text="0.0% of the prompt tokens came from the prefix cache, wanted 1 % or less",
            value=0,
            limit=0.01,
        ),
    )
    return replace(measured, gates=gates)


def level_result(concurrency):
    repeats = tuple(repeat(concurrency, number) for number in range(LOAD.repeats))
    summary = summed(repeats)
    size, unique, model, reduced, hard = LIMITS[concurrency]
    reached, decode = summary["aggregate_tok_s"].mean, summary["decode_tok_s"].mean
    limit = Limit(size, unique, model, reduced, hard, reached / model, concurrency * decode / model)
    return LevelResult(Level(concurrency), repeats, summary, concurrency, limit)


def verdict(levels):
    def metric(result):
        new, old = result.summary["aggregate_tok_s"].mean, CURVE[result.level.concurrency][2]
        change = new / old - 1
        return MetricVerdict(
            result.level.name, "aggregate_tok_s", "pass", new, old, change, change - 0.01, change + 0.01, 0.15
        )

    return Verdict(
        "pass", "reference", tuple(map(metric, levels)), "Not worse than reference in any of 5 figures."
    )


@cache
def result():
    levels = tuple(map(level_result, CURVE))
    return Result(
        "20261130T210000-abc123",
        NINE,
        "0.1.0",
        ("bench", "-i", "inventories/home.yaml", "--baseline", "reference"),
        Target("http://127.0.0.1:8000", "spark-a", 1.31, 0.94),
        Deployment(
            "home",
            "0123456789ab",
            "Qwen3.5-122B-A10B-FP8",
            "Qwen/Qwen3.5-122B-A10B-FP8",
            "fp8",
            "nvcr.io/nvidia/vllm:26.01-py3",
            "sha256:5d8e",
            "vllm",
            "0.17.0",
            ("--max-num-seqs=16", "--gpu-memory-utilization=0.85"),
            ("spark-a", "spark-b"),
            2,
            "RDMA",
            32768,
        ),
        LOAD,
        levels,
        Cold(12.01, 23.1, why="the engine captured its graphs"),
        ("no cache_salt: prompts differ in their first block",),
        Shape(
            "Qwen3.5-122B-A10B-FP8",
            122e9,
            10e9,
            48,
            256,
            8,
            dense_bytes=1.0,
            expert_bytes=1.0,
            source="config.json",
        ),
        words=(
            "Alone, a request gets 27 tok/s, 48 % of what the memory could give: a fixed 19 ms per step are not memory reads.",
            "At 16 at once the experts' weights bound it: 86 % of the memory model.",
        ),
        verdict=verdict(levels),
    )


def invalid_result():
    """The same, but level 8 was answered from the prefix cache in one repeat."""
    levels = list(result().levels)
    gate = Gate(
        "prefix-hits",
        ok=False,
        text="31.0% of the prompt tokens came from the prefix cache, wanted 1 % or less: ask with other prompts: another --seed",
        value=0.31,
        limit=0.01,
    )
    first, *others = levels[3].repeats
    levels[3] = replace(levels[3], repeats=(replace(first, gates=(gate,)), *others))
    found = Verdict(
        "invalid", "reference", verdict(levels[:3]).metrics, "Not valid at 8: nothing follows from it."
    )
    return replace(result(), levels=tuple(levels), verdict=found)


HOSTILE = "</title><script>alert(1)</script>\"'\x1b]0;x\x07&|`"


def hostile_result():
    """A server that calls its model, and an operator who calls his nodes, whatever would break a page."""
    deployment = replace(result().deployment, model=HOSTILE, image=HOSTILE, nodes=(HOSTILE,), args=(HOSTILE,))
    return replace(
        invalid_result(), deployment=deployment, words=(HOSTILE,), fallbacks=(HOSTILE,), command=(HOSTILE,)
    )
