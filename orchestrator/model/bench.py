"""
What `bench` measures, and what it makes of it: `spark-deploy/bench/v1`, the content of result.json.

Every figure is defined in docs/bench.md. Times are seconds, unless a name says otherwise (`_ms`, `_ns`); rates are
tokens or requests per second. None: could not be measured, or too few samples.
"""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # pydantic reads these types at run time
from dataclasses import dataclass, field
from typing import Literal

SCHEMA = "spark-deploy/bench/v1"
DEFINITIONS = 1  # raised when a figure is defined anew: results of two definitions are not compared


@dataclass(frozen=True)
class Load:
    """What was asked of the server, the same at every level."""

    endpoint: Literal["completions", "chat"] = "completions"
    prompt_tokens: int = 512
    output_tokens: int = 300
    requests: int | None = None  # per level and repeat; None: max(4 C, 12), or as many as fit into duration_s
    duration_s: float | None = None
    repeats: int = 1
    seed: int = 0
    temperature: float = 0
    slo: Mapping[str, float] = field(default_factory=dict)  # ttft, tpot, e2e: seconds


@dataclass(frozen=True)
class Level:
    """Closed loop: *concurrency* requests are always in flight. Open loop: *rate* arrive per second (Poisson)."""

    concurrency: int = 0
    rate: float | None = None

    @property
    def name(self) -> str:
        """`16`, or `0.5/s` in an open loop: also the name of the level's file."""
        return str(self.concurrency) if self.rate is None else f"{self.rate:g}/s"


@dataclass(frozen=True)
class Received:
    """One request as seen on the wire: *reads* are the body's bytes without HTTP framing, with their arrival."""

    scheduled_ns: int  # its slot was free, or its arrival was due
    sent_ns: int  # just before the first byte was written to an open socket
    status: int  # of HTTP; 0: no answer
    reads: tuple[tuple[int, bytes], ...]
    ended_ns: int
    end: Literal["complete", "disconnect", "timeout", "stall", "connect", "cancelled"]
    detail: str = ""  # the system's words for an end that is not complete
    slot: int = 0


@dataclass(frozen=True)
class Request:
    """One request, read: event k brought tokens[k] at arrivals_s[k]. Seconds since the level's first send."""

    scheduled_s: float
    sent_s: float
    arrivals_s: tuple[float, ...] = ()
    tokens: tuple[int, ...] = ()
    answer: int | None = None  # index of the first event that is not reasoning
    prompt_tokens: int = 0
    output_tokens: int = 0  # what the server's usage says; without one, what was counted
    attribution: Literal["usage", "token_ids", "even", "chunks"] = "usage"  # how tokens[k] are known
    finish_reason: str = ""
    failure: str = ""  # "": OK; else its class (docs/bench.md#ok)
    detail: str = ""
    slot: int = 0

    @property
    def ok(self) -> bool:
        return not self.failure


@dataclass(frozen=True)
class Spread:
    """Values of one kind. A percentile is None where fewer than 1 / (1 - p) values would stand behind it."""

    n: int = 0
    mean: float | None = None
    sd: float | None = None
    minimum: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    maximum: float | None = None


@dataclass(frozen=True)
class Estimate:
    """A figure over the valid repeats: the mean and the half width of its 95 % interval (None: one repeat)."""

    n: int
    mean: float
    sd: float | None = None
    ci95: float | None = None


@dataclass(frozen=True)
class Gate:
    """One condition of validity. A level with a gate that is not ok is INVALID, unless the gate only warns."""

    name: str
    ok: bool
    text: str  # found and wanted, in words
    value: float | None = None
    limit: float | None = None
    warns: bool = False


@dataclass(frozen=True)
class ServerDelta:
    """What the server's /metrics say of one repeat: differences of counters, maxima of gauges (1 Hz)."""

    generation_tokens: float | None = None
    prompt_tokens: float | None = None
    ttft_mean_s: float | None = None
    queue_mean_s: float | None = None
    prefill_mean_s: float | None = None
    decode_mean_s: float | None = None
    itl_mean_ms: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None
    preemptions: float | None = None
    requests: float | None = None  # finished ones
    drafts: float | None = None
    draft_tokens: float | None = None
    accepted_tokens: float | None = None
    iterations: float | None = None  # engine steps
    iteration_tokens: float | None = None
    kv_usage_max: float | None = None  # 0 to 1
    running_max: float | None = None
    waiting_max: float | None = None
    waiting_share: float | None = None  # of the samples with a request waiting
    in_flight_max: float | None = None  # running and waiting in one sample
    restarted: bool = False  # a counter fell: the other differences are then None
    samples: int = 0

    @property
    def acceptance_length(self) -> float | None:
        """Tokens per engine step and sequence with speculative decoding: 1 + accepted / drafts."""
        return 1 + (self.accepted_tokens or 0) / self.drafts if self.drafts else None


@dataclass(frozen=True)
class NodeLoad:
    """What one node did during one repeat."""

    node: str
    samples: int = 0
    gpu_clock_mhz: Spread = field(default_factory=Spread)
    gpu_temperature_c: Spread = field(default_factory=Spread)
    gpu_power_w: Spread = field(default_factory=Spread)
    gpu_utilisation_pct: Spread = field(default_factory=Spread)
    throttled: tuple[str, ...] = ()  # reasons seen, e.g. "sw_thermal_slowdown"
    rdma_bytes: int | None = None  # received and sent by the fabric's HCAs
    netdev_bytes: int | None = None  # received and sent by the fabric's netdev
    memory_available_min_gib: float | None = None
    problem: str = ""  # why nothing, or not all, could be read


@dataclass(frozen=True)
class ClientHealth:
    """Whether the client itself could keep up."""

    lag_p99_ms: float | None = None  # from the kernel's receive stamp to our read; the tenth-latest of few
    lag_max_ms: float | None = None
    cpu_s: float = 0
    clock_jumps: int = 0
    reopened: int = 0  # sockets that the server had closed between two requests
    stamps: Literal["kernel", "read"] = "read"


@dataclass(frozen=True)
class Goodput:
    """Requests that met every service level objective."""

    requests_s: float
    share: float


@dataclass(frozen=True)
class Repeat:
    """One run of one level. Latencies and token rates are those of the OK requests alone."""

    started: float  # seconds since the epoch
    span_s: float  # last token - first send
    n_ok: int
    failures: Mapping[str, int]
    failure_details: tuple[str, ...]  # the first of each class
    prompt_tokens: int
    output_tokens: int
    aggregate_tok_s: float | None  # over the span
    steady_tok_s: float | None  # over the window in which the level was full
    window_s: tuple[float, float] | None  # [a, b] of it, since the first send
    requests_s: float | None
    decode_tok_s: float | None  # mean of 1000 / TPOT
    decode_harmonic_tok_s: float | None
    user_tok_s: float | None  # mean of N / E2E
    prefill_tok_s: float | None  # C=1 only
    delivered: float | None  # concurrency, by Little's law, inside the window where there is one
    ttft_s: Spread
    ttfot_s: Spread
    tpot_ms: Spread
    itl_ms: Spread  # per token
    icl_ms: Spread  # per event
    e2e_s: Spread
    queue_s: Spread  # t_send - t_sched
    response_s: Spread  # E2E from t_sched: what a user of an open loop feels
    longest_gap_s: float | None
    tokens_per_event: float | None
    reasoning_tokens: int
    attribution: Mapping[str, int]
    goodput: Goodput | None
    itl_histogram: tuple[tuple[float, int], ...]  # upper edge in ms, tokens
    timeline: tuple[tuple[float, float, float], ...]  # second, tok/s, requests in flight
    client: ClientHealth = field(default_factory=ClientHealth)
    server: ServerDelta | None = None
    nodes: tuple[NodeLoad, ...] = ()
    gates: tuple[Gate, ...] = ()

    @property
    def valid(self) -> bool:
        return all(gate.ok or gate.warns for gate in self.gates)


@dataclass(frozen=True)
class Limit:
    """One level against the memory model of docs/roofline.md. Rates are aggregates in tok/s."""

    bytes_per_step: float  # of all nodes
    unique_experts: float | None  # expected, per layer
    model_tok_s: float
    with_all_reduce_tok_s: float
    hard_tok_s: float  # no request touches an expert of its own
    efficiency: float | None = None  # of the model: the aggregate
    decode_efficiency: float | None = None  # of the model: C x the decode rate of one request
    implied_experts: float | None = None  # where more than the model was reached


@dataclass(frozen=True)
class LevelResult:
    """All repeats of one level."""

    level: Level
    repeats: tuple[Repeat, ...]
    # By the names in SUMMED, of valid repeats alone.
    summary: Mapping[str, Estimate] = field(default_factory=dict)
    warmup_requests: int = 0
    limit: Limit | None = None

    @property
    def valid(self) -> bool:
        return bool(self.repeats) and all(repeat.valid for repeat in self.repeats)


# Figures that are summed up over repeats: name in `summary` -> attribute path in a Repeat.
SUMMED: Mapping[str, str] = {
    "aggregate_tok_s": "aggregate_tok_s",
    "steady_tok_s": "steady_tok_s",
    "decode_tok_s": "decode_tok_s",
    "user_tok_s": "user_tok_s",
    "ttft_mean_s": "ttft_s.mean",
    "ttft_p50_s": "ttft_s.p50",
    "ttft_p99_s": "ttft_s.p99",
    "tpot_mean_ms": "tpot_ms.mean",
    "itl_p50_ms": "itl_ms.p50",
    "itl_p99_ms": "itl_ms.p99",
    "e2e_mean_s": "e2e_s.mean",
}


@dataclass(frozen=True)
class Shape:
    """What the memory model needs of a model. Bytes are as stored; parameters are counts."""

    name: str
    parameters: float
    active: float  # per token
    layers: int
    experts: int = 0  # 0: dense
    experts_per_token: int = 0
    dense_bytes: float = 2  # per parameter that every step reads
    expert_bytes: float = 2
    kv_bytes_token: float = 0  # summed over ranks
    hidden: int = 0  # values per token that an all-reduce carries; 0: not known
    source: str = ""  # where these come from, and what of them is assumed


@dataclass(frozen=True)
class Deployment:
    """What was measured. Two results are compared only where these agree."""

    name: str = ""
    release: str = ""  # id12
    model: str = ""  # as served
    root: str = ""  # the Hub id or folder behind it
    quant: str = ""
    image: str = ""
    image_id: str = ""
    engine: str = ""  # e.g. "vllm"
    engine_version: str = ""
    args: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    tensor_parallel: int | None = None
    transport: str = ""
    max_model_len: int | None = None


@dataclass(frozen=True)
class Target:
    """Where the requests went."""

    url: str
    through: str = ""  # "": directly; else the node whose SSH connection carried them
    rtt_ms: float | None = None  # median of small requests on an open connection
    added_ms: float | None = None  # of it, what the SSH connection costs


@dataclass(frozen=True)
class Cold:
    """The very first request, never part of a mean. *why* tells what a log line showed that it waited for."""

    ttft_s: float
    e2e_s: float
    failure: str = ""
    why: str = ""


@dataclass(frozen=True)
class MetricVerdict:
    """One figure of one level against the baseline's. *change* is a fraction; negative is worse."""

    level: str
    metric: str
    status: Literal["pass", "fail", "inconclusive", "shown"]
    new: float
    baseline: float
    change: float
    low: float | None = None  # one-sided 95 % bounds of *change*
    high: float | None = None
    floor: float = 0


@dataclass(frozen=True)
class Verdict:
    """What the sweep is worth against *baseline*."""

    status: Literal["pass", "regression", "inconclusive", "invalid"]
    baseline: str
    metrics: tuple[MetricVerdict, ...] = ()
    text: str = ""


@dataclass(frozen=True)
class Result:
    """All of one `bench`."""

    run_id: str
    started: float  # seconds since the epoch
    tool_version: str
    command: tuple[str, ...]
    target: Target
    deployment: Deployment
    load: Load
    levels: tuple[LevelResult, ...]
    cold: Cold | None = None
    fallbacks: tuple[str, ...] = ()  # what the server could not do, and what was done instead
    shape: Shape | None = None
    bandwidth_gb_s: float = 273
    words: tuple[str, ...] = ()  # the diagnosis, one sentence each
    verdict: Verdict | None = None
    schema: str = SCHEMA
    definitions: int = DEFINITIONS
    finished: bool = True  # False: interrupted, the levels that are there are whole

    @property
    def valid(self) -> bool:
        return bool(self.levels) and all(level.valid for level in self.levels)
