"""A stream counts only if it is whole: every broken one is found and classed, and no good one is thrown out."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from orchestrator.client.drive import Limits
from tests.bench.driving import TOKENS, drive, driven
from tests.truth.client import Truth

# 31 of 64 requests: what made other load generators count 22 broken streams as success
MIX = [
    {"kind": "cut_json", "every": 4, "offset": 0, "at": 5},
    {"kind": "disconnect", "every": 8, "offset": 1, "at": 5},
    {"kind": "error_event", "every": 16, "offset": 2, "at": 5},
    {"kind": "truncate", "every": 32, "offset": 3, "at": 5},
    {"kind": "http500", "every": 64, "offset": 5},
]
CLASS = {
    "cut_json": "truncated",
    "disconnect": "disconnect",
    "error_event": "error_event",
    "truncate": "truncated",
    "http500": "http_5xx",
    None: "",
}


@pytest.mark.parametrize("chat", [False, True])
def test_all_of_31_broken_streams_in_64_are_found_and_classed(truth: Truth, chat: bool) -> None:
    """Each by itself: the request after a broken one on the same slot is not blamed."""
    truth.config(faults=MIX)
    requests = driven(truth, requests=64, concurrency=8, chat=chat)
    records = sorted(truth.requests(), key=lambda one: one["t_recv"])

    assert sum(bool(one["fault"]) for one in records) == 31
    assert [one.failure for one in requests] == [CLASS[one["fault"]] for one in records]


GOOD: dict[str, dict[str, Any]] = {
    "one token each": {},
    "chunks of several tokens": {"tokens_per_chunk": [3, 1, 4, 2]},
    "reasoning first": {"reasoning": 5, "reasoning_field": "reasoning"},
    "reasoning, old name": {"reasoning": 5},
    "a tool call": {"tools": 4},
    "nothing but reasoning": {"reasoning": TOKENS},
    "events cut in two": {"split": True},
    "pings": {"ping": 0.002, "ttft": 0.01},
    "headers at once": {"headers": "immediate", "ttft": 0.005},
    "a role chunk before the prefill": {"role_chunk": "immediate", "ttft": 0.005},
    "no role chunk": {"role_chunk": "none"},
    "the finish reason apart": {"finish": "apart"},
    "all in one event": {"tokens_per_chunk": TOKENS},
    "usage only at the end": {"without": ["continuous_usage"]},
}


@pytest.mark.parametrize("kind", GOOD)
def test_none_of_64_good_streams_is_rejected(truth: Truth, kind: str) -> None:
    truth.config(**GOOD[kind])

    requests = driven(truth, requests=64, concurrency=8, chat=True)

    assert Counter((one.failure, one.output_tokens, sum(one.tokens)) for one in requests) == {
        ("", TOKENS, TOKENS): 64
    }


ALONE: dict[str, tuple[dict[str, Any], str]] = {
    "http 400": ({"kind": "http400", "message": "no such field"}, "http_4xx"),
    "http 429": ({"kind": "http429"}, "http_4xx"),
    "http 500": ({"kind": "http500"}, "http_5xx"),
    "http 503": ({"kind": "http503"}, "http_5xx"),
    "slow headers": ({"kind": "slow_headers", "s": 60}, "timeout"),
    "a stall": ({"kind": "stall", "at": 5, "s": 60}, "stall"),
    "a closed connection": ({"kind": "disconnect", "at": 5}, "disconnect"),
    "a reset connection": ({"kind": "disconnect", "at": 5, "reset": True}, "disconnect"),
    "no answer at all": ({"kind": "disconnect", "byte": 0}, "disconnect"),
    "a clean end too early": ({"kind": "truncate", "at": 5}, "truncated"),
    "half an event": ({"kind": "cut_json", "at": 5}, "truncated"),
    "an event that is no JSON": ({"kind": "bad_json", "at": 5}, "bad_json"),
    "an error event": ({"kind": "error_event", "at": 5}, "error_event"),
    "an error event before the first token": ({"kind": "error_event"}, "error_event"),
    "no usage": ({"kind": "no_usage"}, "truncated"),
    "no finish reason": ({"kind": "no_finish"}, "truncated"),
    "no [DONE]": ({"kind": "no_done"}, "truncated"),
    "a token too many": ({"kind": "over"}, "over"),
    "a token too few": ({"kind": "short"}, "short"),
    "a usage that is wrong": ({"kind": "miscount"}, "miscount"),
}


@pytest.mark.parametrize("name", ALONE)
def test_every_fault_alone_has_its_class(truth: Truth, name: str) -> None:
    """The second of three requests on one connection is struck; the ones around it are not."""
    fault, wanted = ALONE[name]
    truth.config(faults=[fault | {"only": [1]}])

    requests = driven(truth, requests=3, limits=Limits(first_s=1, stall_s=1))

    assert [one.failure for one in requests] == ["", wanted, ""]


def test_a_failure_says_what_the_server_said(truth: Truth) -> None:
    """The class alone does not help whoever must mend it."""
    truth.config(faults=[{"kind": "error_event", "at": 5, "message": "CUDA out of memory"}])

    (request,) = driven(truth, requests=1)

    assert "CUDA out of memory" in request.detail


def body_size(truth: Truth) -> int:
    """Bytes of the body of a stream of 3 tokens."""
    (received,) = drive(truth, requests=1, tokens=3).received
    truth.reset()
    return sum(len(data) for _, data in received.reads)


def test_a_body_that_ends_at_any_byte_is_never_taken_for_a_whole_one(truth: Truth) -> None:
    """Also where the cut hides in the last lines: usage is there, [DONE] is not."""
    size = body_size(truth) - len("\n\n")
    truth.config(faults=[{"kind": "truncate", "byte": byte, "only": [byte]} for byte in range(size)])

    requests = driven(truth, requests=size, tokens=3)

    assert {one.failure for one in requests} <= {"truncated", "bad_json", "empty"}


def test_a_connection_that_ends_at_any_byte_is_never_taken_for_a_whole_answer(truth: Truth) -> None:
    """From the first byte of the status line to the last one of the last chunk."""
    size = body_size(truth)
    truth.config(faults=[{"kind": "disconnect", "byte": byte, "only": [byte]} for byte in range(size)])

    requests = driven(truth, requests=size, tokens=3)

    assert {one.failure for one in requests} == {"disconnect"}


def test_a_server_that_died_leaves_requests_that_could_not_connect(truth: Truth) -> None:
    """Those under way were cut; each slot finds that none can be opened any more."""
    truth.config(faults=[{"kind": "die", "only": [9], "at": 5}])

    requests = driven(truth, requests=64, concurrency=4)

    assert Counter(one.failure for one in requests)["connect"] == 4
