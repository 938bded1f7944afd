"""Whether the figures of a repeat can be believed. Limits and their reasons: docs/bench.md. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orchestrator.model.bench import Gate, ServerDelta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator.model.bench import Level, Load, Repeat

FAILED_SHARE = 0.01
PREFIX_SHARE = 0.01
DELIVERED_SHARE = 0.95
WAITING_SHARE = 0.1
LAG_SHARE = 0.05
COALESCED_SHARE = 0.5
LEAST_LAG_MS = 1.0
FEWEST = 12
WRONG_LENGTHS = ("short", "over", "miscount")


@dataclass(frozen=True)
class _Judged:
    """A repeat, and what was asked for."""

    repeat: Repeat
    level: Level
    load: Load
    exact: bool
    through: str

    @property
    def server(self) -> ServerDelta:
        return self.repeat.server or ServerDelta()

    @property
    def failed(self) -> int:
        return sum(self.repeat.failures.values())


def judge(repeat: Repeat, level: Level, load: Load, *, exact: bool = True, through: str = "") -> Repeat:
    """
    Give *repeat* with its gates; one that does not apply, or cannot be judged here, is left out.

    *exact*: the server was made to give the number of tokens that was asked for. *through*: the node whose SSH
    connection carried the requests.
    """
    judged = _Judged(repeat, level, load, exact, through)
    return replace(repeat, gates=tuple(found for gate in _GATES for found in gate(judged)))


def _samples(judged: _Judged) -> Iterator[Gate]:
    """Means of few requests say little: a warning. None at all: there is nothing to believe."""
    n, wanted = judged.repeat.n_ok, max(FEWEST, 2 * judged.level.concurrency)
    text = f"{n} complete requests, wanted {wanted} or more"
    more = "a longer --duration" if judged.load.duration_s and not judged.load.requests else "more --requests"
    hint = f"ask for {more}" if n else "see why all of them failed"
    yield _least("samples", n, wanted, text, hint, warns=n > 0)


def _failures(judged: _Judged) -> Iterator[Gate]:
    sent = judged.repeat.n_ok + judged.failed
    classes = ", ".join(f"{n} {name}" for name, n in sorted(judged.repeat.failures.items()))
    text = f"{judged.failed} of {sent} requests failed{classes and f' ({classes})'}, wanted 1 % or fewer"
    share = judged.failed / sent if sent else 0.0
    yield _most("failures", share, FAILED_SHARE, text, "read the server's log, ask for less at once")


def _lengths(judged: _Judged) -> Iterator[Gate]:
    """Where no usage tells the length, a short answer is no failure: then it is seen in the mean alone."""
    wanted = judged.load.output_tokens
    if judged.exact and not judged.repeat.attribution.get("chunks"):
        wrong = sum(judged.repeat.failures.get(name, 0) for name in WRONG_LENGTHS)
        text = f"{wrong} answers did not have the {wanted} tokens that were asked for"
        yield _most("lengths", wrong, 0, text, "does the server honour ignore_eos and min_tokens?")
    elif judged.repeat.n_ok:
        mean = judged.repeat.output_tokens / judged.repeat.n_ok
        text = f"answers have {mean:.0f} tokens on average, wanted {wanted}"
        yield _least(
            "lengths", mean, 0.95 * wanted, text, "the server cannot be made to: see the notes", warns=True
        )


def _prompts(judged: _Judged) -> Iterator[Gate]:
    repeat, wanted = judged.repeat, judged.load.prompt_tokens
    if repeat.prompt_tokens:
        mean = repeat.prompt_tokens / repeat.n_ok
        text = f"prompts have {mean:.0f} tokens on average, wanted {wanted} give or take 5 %"
        off = abs(mean - wanted)
        yield _most(
            "prompts", off, 0.05 * wanted, text, "the server cannot count them: see the notes", warns=True
        )


def _prefix(judged: _Judged) -> Iterator[Gate]:
    hits, queries = judged.server.prefix_hits, judged.server.prefix_queries
    if hits is not None and queries is not None:
        share = hits / queries if queries else float(hits > 0)
        text = f"{share:.1%} of the prompt tokens came from the prefix cache, wanted 1 % or less"
        yield _most("prefix-hits", share, PREFIX_SHARE, text, "serve with --no-enable-prefix-caching")


def _delivered(judged: _Judged) -> Iterator[Gate]:
    found, wanted = judged.repeat.delivered, judged.level.concurrency
    if found is not None and wanted and judged.repeat.n_ok:
        text = f"{found:.2f} requests were in flight on average, wanted {DELIVERED_SHARE:.0%} of {wanted} or more"
        limit = DELIVERED_SHARE * wanted
        yield _least("delivered", found, limit, text, "the client is too slow, or requests are too short")


def _waiting(judged: _Judged) -> Iterator[Gate]:
    """A queue in front of the prefill is no fault of a level whose requests all run in the end."""
    share, running, wanted = judged.server.waiting_share, judged.server.running_max, judged.level.concurrency
    if share is None:
        return
    all_ran = bool(wanted) and (running or 0) >= wanted
    text = (
        f"requests waited in {share:.0%} of the samples, wanted 10 % or less; {running or 0:.0f} ran at most"
    )
    hint = "they waited for a prefill" if all_ran else f"raise --max-num-seqs, or ask for fewer than {wanted}"
    warns = all_ran or not wanted  # an open loop may queue: its latency counts that
    yield _most(
        "waiting", share, WAITING_SHARE, text, hint if wanted else "the rate is near the limit", warns=warns
    )


def _preemptions(judged: _Judged) -> Iterator[Gate]:
    if (found := judged.server.preemptions) is not None:
        text = f"{found:.0f} requests were preempted and computed again, wanted 0"
        yield _most("preemptions", found, 0, text, "the KV cache is too small for this level")


def _others(judged: _Judged) -> Iterator[Gate]:
    """Requests that broke may run on for a moment."""
    found, wanted = judged.server.in_flight_max, judged.level.concurrency
    if found is not None and wanted:
        text = f"{found:.0f} requests were in the server at once, wanted {wanted} or fewer"
        yield _most("others", found, wanted + judged.failed, text, "somebody else is using the server")


def _tokens(judged: _Judged) -> Iterator[Gate]:
    """Those of failed requests are counted by the server alone."""
    counted, ours = judged.server.generation_tokens, judged.repeat.output_tokens
    if counted is None:
        return
    beyond, allowed = counted - ours, judged.failed * judged.load.output_tokens
    text = f"the server counted {counted:.0f} tokens, the client {ours}, wanted equal"
    hint = _who(judged.server.requests, judged.repeat.n_ok + judged.failed)
    if judged.repeat.attribution.get("chunks"):
        hint = "its streams carry no usage, so that each chunk was counted as one token"
    ok = 0 <= beyond <= allowed
    yield Gate("tokens", ok, text if ok else f"{text}: {hint}", value=beyond, limit=allowed)


def _who(finished: float | None, sent: int) -> str:
    if finished is None or finished <= sent:
        return "report this: one of them counts wrongly"
    return f"it finished {finished:.0f} requests, {sent} were ours; somebody else is using the server"


def _restarted(judged: _Judged) -> Iterator[Gate]:
    if judged.server.restarted:
        text = "the server's counters fell, wanted rising: it restarted; run the level again"
        yield Gate("restarted", ok=False, text=text)


def _lag(judged: _Judged) -> Iterator[Gate]:
    """
    With the kernel's stamps a late read moves no arrival, until it finds two tokens where one was to be.

    Behind an SSH connection those stamps are of the near end of it, and this process is what carries it.
    """
    lag_ms, itl_ms = judged.repeat.client.lag_p99_ms, judged.repeat.itl_ms.p50
    if lag_ms is None or itl_ms is None:
        return
    limit = max(LAG_SHARE * itl_ms, LEAST_LAG_MS)
    exact = judged.repeat.client.stamps == "kernel" and not judged.through
    warns = exact and lag_ms <= COALESCED_SHARE * itl_ms
    text = f"the client read {lag_ms:.2f} ms late (p99), wanted {limit:.2f} ms or less"
    hint = (
        "the kernel stamped the arrivals: the figures hold"
        if warns
        else "run it on a machine with less other work"
    )
    yield _most("client-lag", lag_ms, limit, text, hint, warns=warns)


def _clock(judged: _Judged) -> Iterator[Gate]:
    jumps = judged.repeat.client.clock_jumps
    text = f"the client's clock was set {jumps} times, wanted 0"
    yield _most("clock", jumps, 0, text, "wait until its time is synchronised")


def _streamed(judged: _Judged) -> Iterator[Gate]:
    """Tokens that come together, in one read, have no time each. A fraction of them is a client that was late once."""
    repeat = judged.repeat
    if repeat.n_ok and repeat.output_tokens > repeat.n_ok:
        ok = repeat.decode_tok_s is not None and repeat.itl_ms.p50 != 0
        late = "answers came in one piece, or in a few: does a proxy buffer them?"
        yield Gate("streamed", ok, "tokens came one after the other" if ok else late)


def _attributed(judged: _Judged) -> Iterator[Gate]:
    estimated = sum(judged.repeat.attribution.get(name, 0) for name in ("even", "chunks"))
    text = f"the tokens of each event are known in {judged.repeat.n_ok - estimated} of {judged.repeat.n_ok} requests"
    yield _most("attribution", estimated, 0, text, "ITL and TPOT are estimates", warns=True)


def _marks(judged: _Judged) -> Iterator[Gate]:
    """What a reader should know of a level, and no reason to throw it out."""
    if judged.server.generation_tokens is None and not judged.server.restarted:
        text = (
            "the server shows no /metrics of vLLM: waiting, preempted and foreign requests would not be seen"
        )
        yield _warning("server-metrics", text)
    for node in judged.repeat.nodes:
        if node.throttled:
            text = f"{node.node} throttled ({', '.join(node.throttled)}), wanted not: look at its cooling and supply"
            yield _warning("throttled", text)
        if not node.samples:
            yield _warning(
                "telemetry", f"{node.node} gave no sample while it ran: {node.problem or 'none came'}"
            )
    if judged.through:
        text = f"measured through the SSH connection of {judged.through}: latencies include it; --url does without"
        yield _warning("through-ssh", text)


_GATES: tuple[Callable[[_Judged], Iterator[Gate]], ...] = (
    *(
        _restarted,
        _failures,
        _lengths,
        _prompts,
        _prefix,
        _delivered,
        _waiting,
        _preemptions,
        _others,
        _tokens,
    ),
    *(_lag, _clock, _streamed, _samples, _attributed, _marks),
)


def _most(name: str, value: float, limit: float, text: str, hint: str, *, warns: bool = False) -> Gate:
    ok = value <= limit
    return Gate(name, ok, text if ok else f"{text}: {hint}", value=value, limit=limit, warns=warns)


def _least(name: str, value: float, limit: float, text: str, hint: str, *, warns: bool = False) -> Gate:
    return replace(_most(name, -value, -limit, text, hint, warns=warns), value=value, limit=limit)


def _warning(name: str, text: str) -> Gate:
    return Gate(name, ok=False, text=text, warns=True)
