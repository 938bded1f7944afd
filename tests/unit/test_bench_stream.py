"""Bytes of real servers, and of broken ones: what is counted, when it arrived, and what class a failure gets."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bench.stream import Wanted, begun, read
from orchestrator.model.bench import Received, Request

MS = 1_000_000
DONE = b"data: [DONE]\n\n"


def event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def text(words: str, total: int | None = None, finish: str | None = None, **more: Any) -> bytes:
    """One event of /v1/completions, as vLLM 0.17 sends it."""
    choice = {"index": 0, "text": words, "logprobs": None, "finish_reason": finish, "stop_reason": None}
    return event({"id": "cmpl-1", "object": "text_completion", "choices": [choice | more], **usage(total)})


def delta(total: int | None = None, finish: str | None = None, **fields: Any) -> bytes:
    """One event of /v1/chat/completions."""
    choice = {"index": 0, "delta": fields, "logprobs": None, "finish_reason": finish}
    return event({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice], **usage(total)})


def usage(total: int | None) -> dict[str, Any]:
    count = {"prompt_tokens": 7, "total_tokens": 7 + (total or 0), "completion_tokens": total}
    return {} if total is None else {"usage": count}


def last_usage(total: int) -> bytes:
    return event({"id": "cmpl-1", "choices": [], **usage(total)})


def received(*pieces: bytes, status: int = 200, end: Any = "complete", detail: str = "") -> Received:
    """Piece k comes at (k + 1) ms."""
    reads = tuple(((k + 1) * MS, piece) for k, piece in enumerate(pieces))
    return Received(0, 0, status, reads, 99 * MS, end, detail)


def reading(*pieces: bytes, tokens: int = 3, **how: Any) -> Request:
    return read(received(*pieces, **how), Wanted(tokens), 0)


WHOLE = (text(" a", 1), text(" b", 2), text(" c", 3, "length"), last_usage(3) + DONE)


def arrivals_ms(request: Request) -> list[float]:
    return [round(1000 * at, 6) for at in request.arrivals_s]


def test_a_whole_stream_is_ok() -> None:
    """The shape that vLLM sends with continuous usage."""
    request = reading(*WHOLE)

    assert (request.failure, request.detail) == ("", "")
    assert (request.tokens, arrivals_ms(request)) == ((1, 1, 1), [1, 2, 3])
    assert (request.output_tokens, request.prompt_tokens, request.finish_reason) == (3, 7, "length")
    assert request.attribution == "usage"


def test_times_are_seconds_since_the_first_send() -> None:
    """Of the whole level, not of this request."""
    one = Received(30 * MS, 40 * MS, 200, ((50 * MS, b"".join(WHOLE)),), 60 * MS, "complete", slot=5)

    request = read(one, Wanted(3), 10 * MS)

    assert (request.scheduled_s, request.sent_s, request.arrivals_s) == (0.02, 0.03, (0.04, 0.04, 0.04))
    assert request.slot == 5


def test_the_role_chunk_is_no_token() -> None:
    """It comes before the prefill on some servers: counted, TTFT would be the round trip."""
    request = reading(
        delta(0, role="assistant", content=""),
        delta(1, content="a"),
        delta(2, "stop", content="b"),
        last_usage(2) + DONE,
        tokens=2,
    )

    assert (request.failure, arrivals_ms(request)) == ("", [2, 3])


def test_one_event_with_several_tokens_counts_them_all() -> None:
    """Speculative decoding."""
    request = reading(text(" a b c", 3), text(" d", 4, "length"), last_usage(4) + DONE, tokens=4)

    assert request.tokens == (3, 1)


def test_a_token_without_text_arrived_when_usage_rose() -> None:
    """Half a UTF-8 character, or a special token."""
    request = reading(text("", 1), text("é", 2), text("", 3, "length"), last_usage(3) + DONE)

    assert (request.failure, arrivals_ms(request), request.answer) == ("", [1, 2, 3], 0)


def test_tokens_none_of_which_has_text_count_too() -> None:
    """A model that is forced to go on after its end says nothing, and is as busy."""
    request = reading(text("", 1), text("", 3, "length"), last_usage(3) + DONE)

    assert (request.failure, request.tokens, request.answer) == ("", (1, 2), 0)


def test_token_ids_count_where_usage_comes_at_the_end() -> None:
    """`return_token_ids`."""
    request = reading(
        text(" a", token_ids=[1, 2]), text(" b", None, "length", token_ids=[3]), last_usage(3) + DONE
    )

    assert (request.attribution, request.tokens) == ("token_ids", (2, 1))


def test_usage_at_the_end_is_split_evenly() -> None:
    """Nothing says which event brought more; the sum is right."""
    request = reading(text("ab"), text("cd"), text("ef", None, "length"), last_usage(7) + DONE, tokens=7)

    assert (request.failure, request.attribution, sum(request.tokens)) == ("", "even", 7)
    assert max(request.tokens) - min(request.tokens) == 1


def test_usage_in_the_last_event_alone_is_not_taken_for_continuous() -> None:
    """All tokens would have come with that event."""
    request = reading(text("a"), text("b"), text("c", 3, "length") + DONE)

    assert (request.attribution, request.tokens) == ("even", (1, 1, 1))


def test_a_server_without_usage_has_its_events_counted() -> None:
    """And says so; nothing can tell whether the count is what was asked."""
    pieces = received(text("a"), text("b", None, "stop"), DONE)

    request = read(pieces, Wanted(5, exact=False, usage=False), 0)

    assert (request.failure, request.attribution, request.output_tokens) == ("", "chunks", 2)


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_is_tokens_before_the_answer(field: str) -> None:
    """Both names: vLLM's new and old one."""
    request = reading(
        delta(1, **{field: "hm"}), delta(2), delta(3, "stop", content="42"), last_usage(3) + DONE
    )

    assert (request.failure, request.tokens, request.answer) == ("", (1, 1, 1), 2)


def test_nothing_but_reasoning_has_no_answer() -> None:
    """TTFOT is then not there, rather than that of a thought."""
    request = reading(
        delta(1, reasoning="a"), delta(2, "length", reasoning="b"), last_usage(2) + DONE, tokens=2
    )

    assert (request.failure, request.answer) == ("", None)


CALL = {"index": 0, "function": {"name": "weather"}}
ARGUMENTS = {"index": 0, "function": {"arguments": '{"city":'}}


@pytest.mark.parametrize("fields", [{"tool_calls": [CALL]}, {"tool_calls": [ARGUMENTS]}, {"refusal": "No."}])
def test_what_is_no_content_but_was_generated_counts(fields: dict[str, Any]) -> None:
    """Tool calls and refusals are tokens, too."""
    request = reading(
        delta(role="assistant", content=""),
        delta(**fields),
        delta(None, "stop"),
        last_usage(1) + DONE,
        tokens=1,
    )

    assert (request.failure, arrivals_ms(request), request.answer) == ("", [2], 0)


def test_events_of_one_read_arrived_together() -> None:
    """What the kernel gave at once cannot be told apart."""
    assert arrivals_ms(reading(WHOLE[0] + WHOLE[1], WHOLE[2] + WHOLE[3])) == [1, 1, 2]


def test_an_event_arrives_with_its_last_byte() -> None:
    """Half of it is of no use to anybody."""
    assert arrivals_ms(reading(WHOLE[0][:9], WHOLE[0][9:] + WHOLE[1], *WHOLE[2:]))[:2] == [2, 2]


DIALECTS = {
    "CRLF": lambda body: body.replace(b"\n", b"\r\n"),
    "CR": lambda body: body.replace(b"\n", b"\r"),
    "no space after the colon": lambda body: body.replace(b"data: ", b"data:"),
    "comments": lambda body: b": ping\n\n" + body.replace(b"\n\n", b"\n: ping\n\n"),
    "BOM": lambda body: b"\xef\xbb\xbf" + body,
    "other fields": lambda body: body.replace(b"data:", b"id: 7\nevent: message\nretry: 10\ndata:"),
    "data in two lines": lambda body: body.replace(b'"choices"', b'\ndata: "choices"'),
    "blank lines between": lambda body: b"\n" + body.replace(b"\n\n", b"\n\n\n\n"),
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_way_to_write_a_stream_of_events_is_read_the_same(dialect: str) -> None:
    """The standard allows them all, and proxies use that."""
    written = DIALECTS[dialect](b"".join(WHOLE))

    assert reading(written) == reading(b"".join(WHOLE))


@given(st.sampled_from(sorted(DIALECTS)), st.lists(st.integers(0, 900), max_size=12))
def test_it_makes_no_difference_where_reads_are_cut(dialect: str, cuts: list[int]) -> None:
    """TCP keeps no boundaries; only arrivals may differ, so all reads come at one time here."""
    body = DIALECTS[dialect](b"".join((text("é ", 1), *WHOLE[1:])))
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    pieces = tuple((MS, body[a:b]) for a, b in pairwise(edges))

    cut = read(Received(0, 0, 200, pieces, 99 * MS, "complete"), Wanted(3), 0)

    assert cut == reading(body)


@given(st.integers(0, len(b"".join(WHOLE)) - 1))
def test_a_stream_that_ends_early_is_never_ok(size: int) -> None:
    """At whatever byte, and though HTTP says that all is well."""
    assert reading(b"".join(WHOLE)[:size]).failure in ("truncated", "empty")


@given(st.binary(max_size=200))
def test_no_bytes_are_too_wild(noise: bytes) -> None:
    """Whatever a server sends ends in a class, never in a traceback."""
    assert reading(text("a", 1), b"data: " + noise + b"\n\n", *WHOLE[1:3]).failure


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "choices",
                        "usage",
                        "delta",
                        "tool_calls",
                        "function",
                        "error",
                        "completion_tokens",
                        "token_ids",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
    )
)
def test_no_json_is_too_wild(value: Any) -> None:
    """JSON of another shape is somebody's answer, too."""
    assert isinstance(reading(event(value), event({"choices": [value], "usage": value}), *WHOLE).failure, str)


CUT = WHOLE[0] + WHOLE[1]
FAILURES: dict[str, tuple[Iterable[bytes], str, str]] = {
    "no finish_reason": ((text("a", 1), last_usage(1) + DONE), "truncated", "no finish_reason"),
    "no usage": ((text("a", None, "length"), DONE), "truncated", "no usage"),
    "no [DONE]": (WHOLE[:3], "truncated", "no [DONE]"),
    "half an event": ((CUT, WHOLE[2][:40]), "truncated", "no finish_reason, no [DONE]"),
    "only pings": ((b": ping\n\n",), "truncated", "the stream ended before a token"),
    "an event that is no JSON": ((CUT, b'data: {"choices": [\n\n', DONE), "bad_json", 'data: {"choices": ['),
    "an event that is no object": ((b"data: 5\n\n", DONE), "bad_json", "data: 5"),
    "bytes that are no UTF-8": ((b'data: {"\xff"}\n\n', DONE), "bad_json", 'data: {"\ufffd"}'),
    "an error": ((CUT, event({"error": {"message": "EngineDeadError", "code": 500}}), DONE), "error_event", "EngineDeadError"),
    "an error of vLLM": ((event({"object": "error", "message": "too long"}), DONE), "error_event", "too long"),
    "an event of type error": ((b'event: error\ndata: {"message": "gone"}\n\n',), "error_event", "gone"),
    "an error without a stream": ((b'{"error": {"message": "no such model"}}',), "error_event", "no such model"),
    "no stream": ((b'{"choices": [{"message": {"content": "all"}}]}',), "empty", "the server does not stream: it sent one answer at the end"),
    "a page": ((b"<html>hello</html>",), "empty", "<html>hello</html>"),
    "nothing": ((), "empty", "nothing in the body"),
    "no token": ((delta(0, "stop", content=""), last_usage(0) + DONE), "empty", "no token in the stream"),
    "too few": ((text("a", 1), text("b", 2, "stop"), last_usage(2) + DONE), "short", "2 tokens of 3"),
    "too many": ((*WHOLE[:2], text("c d", 4, "length"), last_usage(4) + DONE), "over", "4 tokens of 3"),
    "fewer in events": ((text("a", 1), text("b", 2, "length"), last_usage(3) + DONE), "miscount", "2 tokens came in events, usage says 3"),
    "usage that falls": ((text("a", 2), text("b", 1), text("c", 3, "length"), DONE), "miscount", "4 tokens came in events, usage says 3"),
    "more texts than tokens": ((text("a"), text("b"), text("c"), text("d", None, "length"), last_usage(3) + DONE), "miscount", "text in 4 events, usage says 3 tokens"),
}  # fmt: skip


@pytest.mark.parametrize("case", FAILURES)
def test_every_broken_stream_has_its_class_and_says_why(case: str) -> None:
    """A load generator that counts these as success reports a server that is faster the more it fails."""
    pieces, failure, detail = FAILURES[case]

    request = reading(*pieces)

    assert (request.failure, request.detail) == (failure, detail)


def test_fewer_tokens_are_fine_where_the_server_may_stop() -> None:
    """Without ignore_eos the model decides."""
    request = read(received(text("a", 1, "stop"), last_usage(1) + DONE), Wanted(3, exact=False), 0)

    assert request.ok


ERRORS = {
    b'{"error": {"message": "slow down", "type": "x"}}': "429: slow down",
    b'{"error": "slow down"}': "429: slow down",
    b'{"object": "error", "message": "slow down", "code": 429}': "429: slow down",
    b'{"detail": "slow down"}': "429: slow down",
    b'{"detail": [{"loc": ["body"], "msg": "too"}, {"msg": "fast"}]}': "429: too; fast",
    b"plain words\n": "429: plain words",
    b'{"code": 5}': '429: {"code": 5}',
}


@pytest.mark.parametrize("body", ERRORS)
def test_a_refusal_tells_what_the_server_said(body: bytes) -> None:
    """In every shape that servers give it."""
    request = reading(body, status=429)

    assert (request.failure, request.detail) == ("http_4xx", ERRORS[body])


@pytest.mark.parametrize(("status", "failure"), [(307, "http_3xx"), (404, "http_4xx"), (503, "http_5xx")])
def test_a_status_has_its_class_though_the_body_was_cut(status: int, failure: str) -> None:
    """The first thing that went wrong is the one to tell."""
    assert reading(b'{"err', status=status, end="disconnect").failure == failure


@pytest.mark.parametrize("end", ["disconnect", "timeout", "stall", "connect", "cancelled"])
def test_an_end_on_the_wire_is_a_failure_of_that_class(end: str) -> None:
    """Though every event had come: the server did not end its answer."""
    request = reading(*WHOLE, end=end, detail="Connection reset by peer")

    assert (request.failure, request.detail) == (end, "Connection reset by peer")


def test_no_answer_at_all_is_a_failure_too() -> None:
    """Status 0: not one byte."""
    assert reading(status=0, end="timeout").failure == "timeout"


def test_a_server_that_reported_an_error_and_hung_up_is_known_by_its_error() -> None:
    """The cause, not how it went on."""
    assert reading(event({"error": "out of memory"}), end="disconnect").failure == "error_event"


def test_tokens_of_a_broken_stream_are_kept() -> None:
    """The timeline shows them; no mean does."""
    request = reading(*WHOLE[:2], end="disconnect")

    assert (request.tokens, request.output_tokens) == ((1, 1), 2)


def test_waiting_for_a_first_token_is_told_from_a_stream_that_stalls() -> None:
    """A role chunk or a ping is no token: the prefill may take its time."""
    waiting = received(b": ping\n\n", delta(0, role="assistant", content="")).reads

    assert not begun(waiting)
    assert begun((*waiting, (9 * MS, delta(1, content="a"))))


@pytest.mark.parametrize("count", ["many", [7], -1, 10**30, float("nan"), {"n": 7}])
@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens"])
def test_a_usage_that_is_no_number_breaks_the_request_and_not_the_run(name: str, count: object) -> None:
    """Its sum over all requests was a traceback, after a level was measured."""
    odd = event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, name: count}})

    assert reading(*WHOLE[:3], odd + DONE).failure == "bad_json"


def test_a_finish_reason_that_is_a_list_is_text() -> None:
    """Anything else is in no requests.jsonl that can be read again."""
    odd: Any = ["length"]
    assert reading(*WHOLE[:2], text(" c", 3, odd), WHOLE[3]).finish_reason == "['length']"
