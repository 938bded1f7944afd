"""What a server sent for one request: its events, their tokens, and whether it is complete (docs/bench.md#ok)."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import orjson

from orchestrator.model.bench import Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from orchestrator.model.bench import Received

    Attribution = Literal["usage", "token_ids", "even", "chunks"]

# https://html.spec.whatwg.org/multipage/server-sent-events.html: a blank line ends an event; lines end in any way.
_BLANK_LINE = re.compile(rb"(?:\r\n|\r(?!\n)|\n){2}")
_LINE_END = re.compile(r"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"
_DETAIL_CHARACTERS = 300
_MOST_TOKENS = 10**9
# Bytes that are no UTF-8, text that is no JSON, and JSON of another shape: whatever a server may send.
_MALFORMED = (ValueError, TypeError, AttributeError, LookupError, OverflowError, RecursionError)


@dataclass(frozen=True)
class Wanted:
    """What the request asked for."""

    output_tokens: int
    exact: bool = True  # with ignore_eos: exactly that many tokens
    usage: bool = True


class _Event(NamedTuple):
    """One event with a choice in it."""

    arrival_ns: int
    total: int | None  # usage: tokens so far
    ids: int
    text: bool
    reasoning: bool  # and no text of the answer


@dataclass
class _Stream:
    """All of one stream."""

    events: list[_Event]
    prompt_tokens: int = 0
    total: int | None = None  # the last usage
    finish_reason: str = ""
    done: bool = False
    failure: str = ""
    detail: str = ""


def read(received: Received, wanted: Wanted, zero_ns: int) -> Request:
    """Make a Request of the bytes of one: its class of failure is "" where it is complete."""
    stream = _stream(received.reads if received.status == 200 else ())
    failure, detail = _broken(received, stream)
    attribution, tokens = _attributed(stream)
    counted = [(event, n) for event, n in zip(stream.events, tokens, strict=True) if n > 0]
    output_tokens = sum(tokens) if stream.total is None else stream.total
    if not failure:
        failure, detail = _incomplete(received, stream, wanted)
    if not failure and attribution != "chunks":
        failure, detail = _miscounted(output_tokens, tokens, stream, wanted)
    return Request(
        scheduled_s=(received.scheduled_ns - zero_ns) / 1e9,
        sent_s=(received.sent_ns - zero_ns) / 1e9,
        arrivals_s=tuple((event.arrival_ns - zero_ns) / 1e9 for event, _ in counted),
        tokens=tuple(n for _, n in counted),
        answer=_answer([event for event, _ in counted]),
        prompt_tokens=stream.prompt_tokens,
        output_tokens=output_tokens,
        attribution=attribution,
        finish_reason=stream.finish_reason,
        failure=failure,
        detail=detail[:_DETAIL_CHARACTERS],
        slot=received.slot,
    )


def begun(reads: Sequence[tuple[int, bytes]]) -> bool:
    """Whether a token has come."""
    return any(event.text or event.ids or event.total for event in _stream(reads).events)


def _stream(reads: Sequence[tuple[int, bytes]]) -> _Stream:
    stream = _Stream([])
    for arrival_ns, data in _data(reads):
        _take(stream, arrival_ns, data)
    return stream


def _data(reads: Sequence[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """
    Give the bytes of each event, with the arrival of the read that completed it.

    Looked for in the whole body, so that it makes no difference where reads were cut.
    """
    body = b"".join(data for _, data in reads)
    ends = list(accumulate(len(data) for _, data in reads))
    start = len(_BOM) if body.startswith(_BOM) else 0
    for end in _blank_lines(body):
        yield reads[bisect_left(ends, end)][0], body[start:end]
        start = end


def _blank_lines(body: bytes) -> Iterator[int]:
    """Where each ends."""
    if b"\r" in body:
        yield from (found.end() for found in _BLANK_LINE.finditer(body))
        return
    end = body.find(b"\n\n")
    while end >= 0:
        yield end + 2
        end = body.find(b"\n\n", end + 2)


def _take(stream: _Stream, arrival_ns: int, event: bytes) -> None:
    """Add one event to *stream*. What follows [DONE], or a failure, is none of its own."""
    if stream.done or stream.failure:
        return
    try:
        if (
            event.startswith(b"data: {") and event.find(b"\n") == len(event) - 2 and b"\r" not in event
        ):  # nearly all
            _take_json(stream, arrival_ns, "", _json(event[6:-2]))
            return
        kind, data = _fields(event.decode())
        if data == "[DONE]":
            stream.done = True
        elif data:
            _take_json(stream, arrival_ns, kind, _json(data))
    except _MALFORMED:
        stream.failure, stream.detail = "bad_json", event.decode(errors="replace").strip()


def _fields(event: str) -> tuple[str, str]:
    """Give the event's type and its data."""
    lines = [line.partition(":") for line in _LINE_END.split(event)]
    data = "\n".join(value.removeprefix(" ") for name, _, value in lines if name == "data")
    return next((value.strip() for name, _, value in lines if name == "event"), ""), data.strip()


def _json(data: bytes | str) -> Any:
    """What json.loads takes is taken: orjson, five times as fast, knows no NaN and no half of a surrogate pair."""
    try:
        return orjson.loads(data)
    except ValueError:
        return json.loads(data if isinstance(data, str) else data.decode())


def _take_json(stream: _Stream, arrival_ns: int, kind: str, value: Any) -> None:
    """Raises one of _MALFORMED for what has another shape."""
    if kind == "error" or value.get("error") or value.get("object") == "error":
        stream.failure, stream.detail = "error_event", _message(value)
        return
    total = None
    if usage := value.get("usage"):
        stream.prompt_tokens = _count(usage.get("prompt_tokens"))
        stream.total = total = _count(usage.get("completion_tokens"))
    if choices := value.get("choices"):
        choice = choices[0]
        stream.finish_reason = str(choice.get("finish_reason") or stream.finish_reason)
        answer, reasoning = _text(choice)
        ids = choice.get("token_ids")
        stream.events.append(
            _Event(arrival_ns, total, len(ids) if ids else 0, answer or reasoning, not answer and reasoning)
        )


def _count(value: Any) -> int:
    """Raises one of _MALFORMED for what is no number of tokens."""
    number = int(value or 0)
    if not 0 <= number <= _MOST_TOKENS:
        raise ValueError("no number of tokens")
    return number


def _text(choice: Mapping[str, Any]) -> tuple[bool, bool]:
    """Whether there is text of an answer in it, and of reasoning."""
    delta = choice.get("delta")
    if not delta:
        return bool(choice.get("text")), False
    if delta.get("content") or delta.get("refusal"):
        return True, False
    calls = [call.get("function") or {} for call in delta.get("tool_calls") or ()]
    answer = any(call.get("arguments") or call.get("name") for call in calls)
    return answer, bool(delta.get("reasoning") or delta.get("reasoning_content"))


def _attributed(stream: _Stream) -> tuple[Attribution, list[int]]:
    """Say how many tokens each event brought, from the best source that there is."""
    events = stream.events
    with_text = [event for event in events if event.text]
    if events and all(event.total is not None for event in with_text or events):
        return "usage", list(_rises(event.total for event in events))
    if any(event.ids for event in events):
        return "token_ids", [event.ids for event in events]
    if stream.total is not None:
        shares = iter(_shares(stream.total, len(with_text)))
        return "even", [next(shares) if event.text else 0 for event in events]
    return "chunks", [int(event.text) for event in events]


def _rises(totals: Iterable[int | None]) -> Iterator[int]:
    """A total that falls is wrong: the rises then add up to more than the last one."""
    last = 0
    for total in totals:
        now = last if total is None else total
        yield max(now - last, 0)
        last = now


def _shares(total: int, events: int) -> list[int]:
    return [total * (k + 1) // events - total * k // events for k in range(events)]


def _answer(events: Sequence[_Event]) -> int | None:
    """Tokens without text, such as half a character, belong to what comes next; after reasoning, to that."""
    first = next((k for k, event in enumerate(events) if event.text and not event.reasoning), None)
    reasoned = any(event.reasoning for event in events[:first])
    return first if reasoned else (0 if events else None)


def _broken(received: Received, stream: _Stream) -> tuple[str, str]:
    """Give the class of what went wrong on the way, or was said to have gone wrong, and the words for it."""
    if received.status not in (0, 200):
        return f"http_{received.status // 100}xx", f"{received.status}: {said(_body(received))}"
    if stream.failure:
        return stream.failure, stream.detail
    if received.end != "complete":
        return received.end, received.detail
    return "", ""


def _incomplete(received: Received, stream: _Stream, wanted: Wanted) -> tuple[str, str]:
    parts = {
        "finish_reason": stream.finish_reason,
        "usage": stream.total is not None or not wanted.usage,
        "[DONE]": stream.done,
    }
    missing = [name for name, there in parts.items() if not there]
    if not stream.events and not stream.done:
        return _not_streamed(received)
    if missing:
        return "truncated", "no " + ", no ".join(missing)
    if not any(event.text or event.ids or event.total for event in stream.events):
        return "empty", "no token in the stream"
    return "", ""


def _not_streamed(received: Received) -> tuple[str, str]:
    body = _body(received).removeprefix(_BOM).strip()
    if re.match(rb"data|event|id|retry|:", body):
        return "truncated", "the stream ended before a token"
    if b'"choices"' in body:
        return "empty", "the server does not stream: it sent one answer at the end"
    return ("error_event" if body.startswith(b"{") else "empty"), said(body) or "nothing in the body"


def _miscounted(
    output_tokens: int, tokens: Sequence[int], stream: _Stream, wanted: Wanted
) -> tuple[str, str]:
    found = f"{output_tokens} tokens of {wanted.output_tokens}"
    if output_tokens > wanted.output_tokens:
        return "over", found
    if wanted.exact and output_tokens < wanted.output_tokens:
        return "short", found
    texts = sum(event.text for event in stream.events)
    if sum(tokens) != output_tokens:
        return "miscount", f"{sum(tokens)} tokens came in events, usage says {output_tokens}"
    if texts > output_tokens:
        return "miscount", f"text in {texts} events, usage says {output_tokens} tokens"
    return "", ""


def _body(received: Received) -> bytes:
    return b"".join(data for _, data in received.reads)


def said(body: bytes) -> str:
    """Give the server's message, out of any of the shapes that servers give an error."""
    text = body.decode(errors="replace").strip()
    try:
        return _message(json.loads(text))[:_DETAIL_CHARACTERS]
    except (ValueError, RecursionError):
        return text[:_DETAIL_CHARACTERS]


def _message(value: object) -> str:
    if isinstance(value, dict):
        inner = next((value[key] for key in ("error", "message", "detail", "msg") if value.get(key)), None)
        return _message(inner) if inner else json.dumps(value)
    if isinstance(value, list):
        return "; ".join(map(_message, value))
    return str(value)
