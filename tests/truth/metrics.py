"""/metrics as vLLM's Prometheus client writes it, with the names of 0.8 ("old") or of 0.17 and later."""

from __future__ import annotations

from collections.abc import Iterator

from .engine import Engine

KV_SEQUENCES = 64  # so many requests fill the cache


def exposition(engine: Engine) -> str:
    return "\n".join([*_gauges(engine), *_counters(engine), *_histograms(engine)]) + "\n"


def _labels(engine: Engine, more: str = "") -> str:
    return f'{{engine="0",model_name="{engine.options.model}"{more}}}'


def _metric(name: str, kind: str, *lines: str) -> list[str]:
    return [f"# HELP vllm:{name} What it counts.", f"# TYPE vllm:{name} {kind}", *lines]


def _gauges(engine: Engine) -> Iterator[str]:
    labels, old = _labels(engine), engine.options.metrics == "old"
    for name, value in {
        "num_requests_running": engine.running,
        "num_requests_waiting": len(engine.waiting) + engine.options.waiting,
        "gpu_cache_usage_perc" if old else "kv_cache_usage_perc": min(1.0, engine.running / KV_SEQUENCES),
    }.items():
        yield from _metric(name, "gauge", f"vllm:{name}{labels} {float(value)}")


def _counters(engine: Engine) -> Iterator[str]:
    totals, options, labels = engine.totals, engine.options, _labels(engine)
    prefix = "gpu_prefix_cache" if options.metrics == "old" else "prefix_cache"
    values = {
        "prompt_tokens": totals.prompt,
        "generation_tokens": totals.generated + options.generation_extra,
        "num_preemptions": int(options.preemptions * totals.finished),
        f"{prefix}_queries": totals.prefix_queries,
        f"{prefix}_hits": totals.prefix_hits,
    }
    if options.speculative:
        values |= {
            "spec_decode_num_drafts": totals.steps,
            "spec_decode_num_draft_tokens": totals.steps * options.draft_tokens,
            "spec_decode_num_accepted_tokens": totals.generated - totals.steps,
        }
    for name, value in values.items():
        created = f"vllm:{name}_created{labels} 1.7e+09"
        yield from _metric(name, "counter", f"vllm:{name}_total{labels} {float(value)}", created)
    reasons = (("stop", 0), ("length", totals.finished), ("abort", 0))
    lines = [
        f"vllm:request_success_total{_labels(engine, f',finished_reason={chr(34)}{reason}{chr(34)}')} {float(n)}"
        for reason, n in reasons
    ]
    yield from _metric("request_success", "counter", *lines)


def _histograms(engine: Engine) -> Iterator[str]:
    totals, labels = engine.totals, _labels(engine)
    old = engine.options.metrics == "old"
    per_token = "time_per_output_token_seconds" if old else "inter_token_latency_seconds"
    for name, (total, count) in {
        "time_to_first_token_seconds": (totals.ttft_s, totals.first_tokens),
        per_token: (totals.decode_s, totals.decode_tokens),
        "e2e_request_latency_seconds": (totals.e2e_s, totals.finished),
        "request_queue_time_seconds": (totals.queue_s, totals.requests),
        "request_prefill_time_seconds": (totals.ttft_s - totals.queue_s, totals.first_tokens),
        "request_decode_time_seconds": (totals.decode_s, totals.finished),
        "iteration_tokens_total": (totals.prompt + totals.generated, totals.steps),
    }.items():
        infinite = f"vllm:{name}_bucket{_labels(engine, ',le=' + chr(34) + '+Inf' + chr(34))} {float(count)}"
        summed = (f"vllm:{name}_count{labels} {float(count)}", f"vllm:{name}_sum{labels} {total}")
        yield from _metric(name, "histogram", infinite, *summed)
