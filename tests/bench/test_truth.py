"""The ground-truth server itself: what it records is what it sends, or nothing else here can be believed."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from typing import Any

import pytest

from tests.truth.client import Truth

USAGE = {"include_usage": True, "continuous_usage_stats": True}


class Asked:
    """One answer, read with the standard library."""

    def __init__(
        self, truth: Truth, path: str, body: dict[str, Any] | None = None, key: str = "", *, get: bool = False
    ) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", truth.port, timeout=30)
        try:
            words = {"Authorization": f"Bearer {key}"} if key else {}
            connection.request("GET" if get else "POST", path, None if get else json.dumps(body or {}), words)
            answer = connection.getresponse()
            self.status, self.text = answer.status, answer.read().decode()
        finally:
            connection.close()

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def events(self) -> list[Any]:
        lines = [line.removeprefix("data: ") for line in self.text.split("\n\n") if line]
        return [json.loads(line) for line in lines if line not in {"[DONE]", ": ping"}]


def completion(truth: Truth, **more: Any) -> Asked:
    body = {
        "model": "gt-model",
        "prompt": [300] * 20,
        "max_tokens": 10,
        "stream": True,
        "stream_options": USAGE,
    }
    return Asked(truth, "/v1/completions", body | more)


def test_prompt_tokens_are_those_that_tokenize_gives(truth: Truth) -> None:
    """A client that calibrates its prompts by /tokenize must find the same numbers in usage."""
    messages = [{"role": "user", "content": "What is the speed of light?"}]
    counted = Asked(truth, "/tokenize", {"messages": messages}).json["count"]
    chat = {"model": "gt-model", "messages": messages, "max_tokens": 1}

    assert Asked(truth, "/v1/chat/completions", chat).json["usage"]["prompt_tokens"] == counted


def test_token_ids_come_back_as_their_text(truth: Truth) -> None:
    ids = Asked(truth, "/tokenize", {"prompt": "Two small computers."}).json["tokens"]

    assert Asked(truth, "/detokenize", {"tokens": ids}).json == {"prompt": "Two small computers."}


def test_every_event_says_how_many_tokens_there_were_so_far(truth: Truth) -> None:
    truth.config(tokens_per_chunk=[3, 1, 4])

    counts = [event["usage"]["completion_tokens"] for event in completion(truth).events]

    assert counts == [3, 4, 8, 10, 10]


def test_the_record_holds_each_event_that_was_sent(truth: Truth) -> None:
    """Moments and sizes: all else is computed from these."""
    truth.config(tokens_per_chunk=[3, 1, 4], itl=0.005)
    before = time.perf_counter()
    completion(truth)
    (record,) = truth.requests()

    assert record["tokens"] == [3, 1, 4, 2]
    assert before < record["t_recv"] < record["chunks"][0] < record["chunks"][-1] < time.perf_counter()


@pytest.mark.parametrize("kind", ["content", "reasoning", "reasoning_content", "tool_calls"])
def test_every_kind_of_token_is_sent_in_its_own_field(truth: Truth, kind: str) -> None:
    truth.config(reasoning=3, tools=2, reasoning_field=kind if "reasoning" in kind else "reasoning")
    messages = [{"role": "user", "content": "Hello"}]
    body = {"model": "gt-model", "messages": messages, "max_tokens": 9, "stream": True}
    events = Asked(truth, "/v1/chat/completions", body).events

    assert any(event["choices"][0]["delta"].get(kind) for event in events)


def test_a_wrong_key_is_answered_as_vllm_does(truth: Truth) -> None:
    truth.config(key="right")
    answers = [Asked(truth, "/v1/models", key=key, get=True) for key in ("", "wrong", "right")]

    assert [one.status for one in answers] == [401, 401, 200]
    assert answers[0].json == {"error": "Unauthorized"}


def test_an_unknown_model_is_answered_as_vllm_does(truth: Truth) -> None:
    answer = completion(truth, model="other")

    assert (answer.status, answer.json["error"]["message"]) == (404, "The model `other` does not exist.")


def test_a_certificate_of_its_own_is_accepted_by_who_knows_it() -> None:
    with Truth(tls=True) as truth:
        context = ssl.create_default_context(cafile=truth.ca_file)
        connection = http.client.HTTPSConnection("localhost", truth.port, timeout=30, context=context)
        connection.request("GET", "/v1/models")
        status = connection.getresponse().status
        connection.close()

    assert status == 200


@pytest.mark.parametrize(
    ("missing", "path", "status"),
    [
        ("tokenize", "/tokenize", 404),
        ("metrics", "/metrics", 404),
        ("version", "/version", 404),
        ("completions", "/v1/completions", 404),
        ("token_ids", "/v1/completions", 400),
    ],
)
def test_what_a_plain_server_lacks_can_be_taken_away(
    truth: Truth, missing: str, path: str, status: int
) -> None:
    truth.config(without=[missing])

    assert Asked(truth, path, {"prompt": [300]}, get=missing in {"metrics", "version"}).status == status


def test_a_server_that_ignores_ignore_eos_stops_early(truth: Truth) -> None:
    truth.config(eos_after=4)
    heeded = completion(truth, ignore_eos=True).events[-1]["usage"]["completion_tokens"]
    truth.config(without=["ignore_eos", "min_tokens"])

    assert (heeded, completion(truth, ignore_eos=True).events[-1]["usage"]["completion_tokens"]) == (10, 4)


def test_a_prompt_seen_before_is_a_prefix_hit_unless_its_salt_differs(truth: Truth) -> None:
    """The gate against prefix hits is tested with a cache that works as the real one does: in blocks of 16."""
    for salt in ("a", "b", "a"):
        completion(truth, cache_salt=salt)
    lines = Asked(truth, "/metrics", get=True).text.splitlines()

    assert 'vllm:prefix_cache_hits_total{engine="0",model_name="gt-model"} 16.0' in lines


@pytest.mark.parametrize(
    ("names", "cache"), [("new", "kv_cache_usage_perc"), ("old", "gpu_cache_usage_perc")]
)
def test_metrics_have_the_names_of_their_time(truth: Truth, names: str, cache: str) -> None:
    truth.config(metrics=names)

    assert f"\nvllm:{cache}{{" in Asked(truth, "/metrics", get=True).text


def test_more_requests_than_fit_wait_for_their_turn(truth: Truth) -> None:
    """One at a time: the second starts when the first is done."""
    truth.config(max_seqs=1, ttft=0.05)
    connections = [http.client.HTTPConnection("127.0.0.1", truth.port, timeout=30) for _ in range(2)]
    for connection in connections:
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "Hi", "stream": True}))
    for connection in connections:
        connection.getresponse().read()
        connection.close()
    first, second = sorted(truth.requests(), key=lambda one: one["t_first"])

    assert first["t_end"] <= second["t_first"]


def test_a_server_that_refuses_connections_still_tells_the_truth(truth: Truth) -> None:
    truth.config(refuse=True)
    with pytest.raises(ConnectionRefusedError):
        completion(truth)
    truth.config(refuse=False)

    assert completion(truth).status == 200


def test_a_misspelled_option_is_an_error(truth: Truth) -> None:
    with pytest.raises(ValueError, match="no such option: tftt"):
        truth.config(tftt=1)
