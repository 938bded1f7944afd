"""Results of `bench` to judge and to talk about: the reference curve, and what becomes of it by edits."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.bench.roofline import limit
from orchestrator.bench.summary import summed
from orchestrator.load.baseline import shipped_baselines, shipped_shapes
from orchestrator.model.bench import (
    Cold,
    Deployment,
    Gate,
    Level,
    LevelResult,
    Load,
    Repeat,
    Result,
    Spread,
    Target,
)

MODEL = "Qwen/Qwen3.5-122B-A10B-FP8"
SHAPE = shipped_shapes()[MODEL]
REFERENCE = next(baseline for baseline in shipped_baselines() if baseline.name == "reference")
DEPLOYMENT = Deployment(
    name="home",
    model="qwen",
    root=MODEL,
    quant="fp8",
    image="vllm:0.17",
    engine="vllm",
    engine_version="0.17.0",
    args=(MODEL, "--max-model-len=65536"),
    nodes=("spark-1", "spark-2"),
    tensor_parallel=2,
)
INVALID = Gate("lengths", ok=False, text="3 of 12 answers were short")


def repeat(
    aggregate: float, decode: float | None = None, ttft_s: float | None = None, **others: object
) -> Repeat:
    spreads = dict.fromkeys(("ttfot_s", "itl_ms", "icl_ms", "e2e_s", "queue_s", "response_s"), Spread())
    nothing = dict.fromkeys(
        ("steady_tok_s", "window_s", "requests_s", "decode_harmonic_tok_s", "user_tok_s", "prefill_tok_s")
    )
    unknown = dict.fromkeys(("delivered", "longest_gap_s", "tokens_per_event", "goodput"))
    given = {
        "started": 0,
        "span_s": 100,
        "n_ok": 12,
        "failures": {},
        "failure_details": (),
        "prompt_tokens": 12 * 512,
        "output_tokens": 12 * 300,
        "aggregate_tok_s": aggregate,
        "decode_tok_s": decode,
        "ttft_s": Spread(n=12, mean=ttft_s),
        "tpot_ms": Spread(n=12, mean=1000 / decode if decode else None),
        "reasoning_tokens": 0,
        "attribution": {},
        "itl_histogram": (),
        "timeline": (),
    }
    return Repeat(**{**spreads, **nothing, **unknown, **given, **others})


def level(concurrency: int, *repeats: Repeat) -> LevelResult:
    """Held against the memory model as the reference's own."""
    summary = summed(repeats)
    means = {name: summary[name].mean for name in ("aggregate_tok_s", "decode_tok_s") if name in summary}
    held = limit(SHAPE, Level(concurrency), nodes=2, **means)
    return LevelResult(Level(concurrency), repeats, summary, limit=held)


def result(*levels: LevelResult, **others: object) -> Result:
    """Of the reference deployment; without *levels* its published curve."""
    given = Result(
        run_id="20261201T120000-abcdef",
        started=0,
        tool_version="0.2.0",
        command=("bench",),
        target=Target("http://127.0.0.1:8000"),
        deployment=DEPLOYMENT,
        load=Load(),
        levels=levels or curve(),
        cold=Cold(ttft_s=12.0, e2e_s=23.1),
        shape=SHAPE,
    )
    return replace(given, **others)


def curve() -> tuple[LevelResult, ...]:
    return tuple(
        level(int(name), repeat(row["aggregate_tok_s"][0], row["decode_tok_s"][0], row["ttft_mean_s"][0]))
        for name, row in REFERENCE.rows.items()
    )
