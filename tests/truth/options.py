"""What the server shall do: `--set name=JSON`, or `Truth.config(name=value)` while it runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

# TTFT in seconds and decode rate in tok/s by concurrency: the reference deployment
REFERENCE = {"1": [0.48, 27.0], "2": [0.86, 21.0], "4": [1.48, 19.0], "8": [2.29, 12.0], "16": [3.20, 10.0]}


@dataclass(frozen=True)
class Fault:
    """
    What goes wrong with the requests whose number *k* has k % every == offset, or stands in *only*.

    Kinds: http500, http429 … (any status); slow_headers (waits *s*); stall (waits *s* at token *at*); disconnect (at
    token *at*, or after *byte* bytes of the answer on the wire; a reset where *reset*); truncate (the HTTP body ends
    well at token *at*, or after *byte* bytes of it); cut_json (half an event, then a clean end); bad_json (a whole event
    that is no JSON); error_event (and then [DONE]); no_usage, no_finish, no_done; over, short (*by* tokens more or
    fewer, as the usage says, too); miscount (*by* fewer than asked, and the usage says nothing of it); die (every
    connection is cut, new ones are refused).
    """

    kind: str
    every: int = 1
    offset: int = 0
    only: tuple[int, ...] = ()
    at: int = 0
    byte: int | None = None
    s: float = 0
    by: int = 1
    reset: bool = False
    message: str = "EngineDeadError: injected"

    def hits(self, number: int) -> bool:
        return number in self.only if self.only else number % self.every == self.offset


@dataclass
class Options:
    """All that can be set; `Options()` is what a fresh server does."""

    model: str = "gt-model"
    root: str = ""  # what /v1/models names behind it; "": the model itself
    max_model_len: int = 131072
    key: str = ""  # an API key that /v1 asks for
    prefix: str = ""  # e.g. "/llm": the API lies below it
    version: str = "0.32.0"
    without: list[str] = field(default_factory=list)  # MISSING
    reject: list[str] = field(default_factory=list)  # body fields answered with 400, e.g. cache_salt
    bos: bool = False  # a text prompt gets one token more, as tokenizers with add_bos_token do
    idle_close: float = 0  # seconds after which an idle connection is closed; uvicorn: 5

    curve: dict[str, list[float]] | None = None  # {"C": [TTFT s, decode tok/s]}, linear in between
    ttft: float = 0.0  # seconds, without a curve
    itl: float = 0.0  # seconds per decode step, without a curve
    speed: float = 1.0  # all times of the curve are divided by it
    settle: float = 0.05  # seconds after arrival when concurrency is read off: a burst counts itself
    sync: bool = False  # all streams step together, as an engine does
    max_seqs: int = 0  # more requests than these wait; 0: none waits
    cold: dict[str, float] | None = None  # {"n": 1, "ttft": 12.0}: the first n requests after a reset

    tokens_per_chunk: int | list[int] = 1  # cycled over steps, as with speculative decoding
    word: str = " the"  # one token, by tokens.py
    reasoning: int = 0  # the first tokens go to *reasoning_field*
    reasoning_field: str = "reasoning_content"  # "reasoning" from vLLM 0.12 on
    tools: int = 0  # the last tokens are arguments of a tool call (chat)
    role_chunk: str = "with_first"  # "immediate": before the prefill; "none"
    headers: str = "with_first"  # "immediate"
    finish: str = "with_last"  # "apart": in an event of its own, without tokens
    eos_after: int = 0  # the model stops here, unless ignore_eos or min_tokens says otherwise
    default_max_tokens: int = 128
    ping: float = 0.0  # seconds between ": ping" lines before the first token
    split: bool = False  # each event in two segments 0.3 ms apart; the truth is the second

    metrics: str = "new"  # "old": vLLM 0.8's names
    prefix_hits: float | None = (
        None  # share of prompt tokens; None: blocks of 16 really seen before with this salt
    )
    waiting: int = 0  # added to the gauge
    preemptions: float = 0  # per request
    speculative: bool = False  # counters of drafts; each has *draft_tokens*
    draft_tokens: int = 3
    generation_extra: int = 0  # tokens that the counter says beyond those sent: somebody else's

    faults: list[Fault] = field(default_factory=list)
    faults_from: int = 0  # requests for fewer output tokens have no number and no fault: probes, warm-up

    def change(self, values: dict[str, Any]) -> None:
        """Raises ValueError for a name that is none."""
        if unknown := values.keys() - {one.name for one in fields(self)}:
            raise ValueError(f"no such option: {', '.join(sorted(unknown))}")
        if missing := set(values.get("without", ())) - MISSING:
            raise ValueError(f"cannot do without: {', '.join(sorted(missing))}")
        for name, value in values.items():
            setattr(self, name, [_fault(one) for one in value] if name == "faults" else value)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def fault(self, number: int) -> Fault | None:
        return next((fault for fault in self.faults if fault.hits(number)), None)

    def pace(self, concurrency: int) -> tuple[float, float]:
        """Seconds to the first token and per step, with *concurrency* requests in flight."""
        if not self.curve:
            return self.ttft, self.itl
        points = sorted((int(name), values) for name, values in self.curve.items())
        low = max((one for one in points if one[0] <= concurrency), default=points[0])
        high = min((one for one in points if one[0] >= concurrency), default=points[-1])
        share = 0 if high[0] == low[0] else (concurrency - low[0]) / (high[0] - low[0])
        ttft = low[1][0] + share * (high[1][0] - low[1][0])
        itl = 1 / low[1][1] + share * (1 / high[1][1] - 1 / low[1][1])
        return ttft / self.speed, itl / self.speed


MISSING = {
    *("tokenize", "metrics", "version", "completions", "chat"),  # 404
    "token_ids",  # prompts of token ids: 400
    *("usage", "continuous_usage", "return_token_ids", "min_tokens", "ignore_eos"),  # taken, and not heeded
}


def _fault(values: dict[str, Any]) -> Fault:
    return Fault(**{**values, "only": tuple(values.get("only", ()))})
