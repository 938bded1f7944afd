"""What a server can do is found by asking it, and what it cannot is said."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from orchestrator.client.abilities import Capabilities, look, probe
from orchestrator.client.api import Api
from orchestrator.client.prompts import bodies
from orchestrator.client.server import Server, parse_url
from orchestrator.errors import FileError, UnreachableError, UsageError
from orchestrator.model.bench import Load
from tests.remote.conftest import free_port
from tests.truth.client import Truth

LOAD = Load(prompt_tokens=100, output_tokens=20)
CHAT = replace(LOAD, endpoint="chat")


def found(truth: Truth, load: Load = LOAD) -> Capabilities:
    api = Api(parse_url(truth.url))
    return probe(api, look(api, "gt-model", load), load)


def ask_one(truth: Truth, known: Capabilities, load: Load = LOAD) -> None:
    """The request that a level would send."""
    api = Api(parse_url(truth.url))
    body = next(bodies(known, load, seed=0, salt="s"))
    assert api.ask("POST", f"/v1{known.path}", json.loads(body)).status == 200


def test_vllm_can_do_all_of_it(truth: Truth) -> None:
    known = found(truth)

    assert known.fallbacks == ()
    assert (known.engine, known.version, known.max_model_len) == ("vllm", "0.32.0", 131072)


def test_nothing_is_generated_before_the_cold_request(truth: Truth) -> None:
    look(Api(parse_url(truth.url)), "", LOAD)

    assert truth.requests() == []


@pytest.mark.parametrize("load", [LOAD, CHAT], ids=["completions", "chat"])
def test_the_server_counts_the_tokens_that_were_wanted(truth: Truth, load: Load) -> None:
    ask_one(truth, found(truth, load), load)

    last = truth.requests()[-1]
    assert (last["prompt_tokens"], last["asked"]) == (100, 20)


def test_a_strict_server_gets_only_what_it_takes(truth: Truth) -> None:
    """OpenAI's own API answers 400 to a field that it does not know."""
    truth.config(reject=["cache_salt", "min_tokens", "ignore_eos"])

    known = found(truth)

    assert (known.cache_salt, known.min_tokens, known.ignore_eos, known.usage) == (False, False, False, True)
    ask_one(truth, known)


def test_speculative_decoding_keeps_ignore_eos(truth: Truth) -> None:
    """vLLM refuses min_tokens with it: the lengths still are exact."""
    truth.config(reject=["min_tokens"])

    assert found(truth).exact


def test_a_server_without_continuous_usage_is_asked_for_token_ids(truth: Truth) -> None:
    truth.config(without=["continuous_usage"])

    known = found(truth)

    assert (known.continuous_usage, known.token_ids) == (False, True)
    assert known.fallbacks == (
        "the server does not say how many tokens a chunk carries: they are counted by return_token_ids",
    )


def test_a_server_without_a_tokenizer_gets_texts(truth: Truth) -> None:
    truth.config(without=["tokenize"])

    known = found(truth)

    assert not known.token_prompts
    assert known.fallbacks == (
        "the server has no /tokenize: prompts are texts, and their length is an estimate",
    )


def test_a_server_that_takes_no_token_ids_gets_calibrated_texts(truth: Truth) -> None:
    truth.config(without=["token_ids"], bos=True)

    known = found(truth)
    ask_one(truth, known)

    assert truth.requests()[-1]["prompt_tokens"] == 100


def test_a_server_with_chat_alone_is_asked_to_chat(truth: Truth) -> None:
    truth.config(without=["completions"])

    known = found(truth)

    assert known.endpoint == "chat"
    assert known.fallbacks == ("the server has no /v1/completions: /v1/chat/completions is asked",)


def test_a_plain_server_can_be_measured(truth: Truth) -> None:
    """All that vLLM adds is missing."""
    missing = ["tokenize", "metrics", "version", "token_ids", "usage", "continuous_usage", "return_token_ids"]
    truth.config(without=missing, reject=["cache_salt", "min_tokens", "ignore_eos", "return_token_ids"])

    known = found(truth)
    ask_one(truth, known)

    assert len(known.fallbacks) == 5


def test_a_model_that_is_not_served_is_told_with_those_that_are(truth: Truth) -> None:
    with pytest.raises(UsageError) as caught:
        look(Api(parse_url(truth.url)), "other", LOAD)

    assert (caught.value.found, caught.value.hint) == ("gt-model", "--model gt-model")


def test_a_prompt_that_is_too_long_is_refused_at_once(truth: Truth) -> None:
    truth.config(max_model_len=119)

    with pytest.raises(UsageError) as caught:
        look(Api(parse_url(truth.url)), "gt-model", LOAD)

    assert caught.value.wanted == "at most 119 (its max-model-len)"


@pytest.mark.parametrize(
    ("key", "message"), [("", "the server wants an API key"), ("wrong", "the server refuses the API key")]
)
def test_a_wrong_key_is_a_usage_error(truth: Truth, key: str, message: str) -> None:
    truth.config(key="right")

    with pytest.raises(UsageError) as caught:
        look(Api(parse_url(truth.url, key)), "gt-model", LOAD)

    assert caught.value.message == message
    assert "wrong" not in str(caught.value.hint)


def test_the_right_key_opens_it(truth: Truth) -> None:
    truth.config(key="right")

    assert look(Api(parse_url(truth.url, "right")), "", LOAD).model == "gt-model"


def test_nobody_there_is_unreachable() -> None:
    with pytest.raises(UnreachableError) as caught:
        look(Api(parse_url(f"http://127.0.0.1:{free_port()}")), "", LOAD)

    assert caught.value.found == "Connection refused"


def test_a_wrong_authority_file_is_told_before_anything_is_dialled() -> None:
    """Else it would be told only of a server that is there."""
    with pytest.raises(FileError):
        Api(parse_url(f"https://127.0.0.1:{free_port()}", ca_file="/nowhere")).models()


def test_without_usage_a_chunk_is_said_to_be_one_token(truth: Truth) -> None:
    """Not that the tokens were spread: nobody knows their number."""
    truth.config(without=["usage", "continuous_usage", "return_token_ids"])

    assert found(truth).fallbacks[-1].endswith("how many tokens a chunk carries: each is taken for one")


@contextmanager
def answering(answers: dict[str, bytes]) -> Iterator[Server]:
    """A server of few words: the same for each path, 404 elsewhere."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            body = answers.get(self.path, b"")
            self.send_response(200 if body else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815  # http.server's name

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield parse_url(f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("event", [b'{"choices":[null]}', b'{"choices":{"a":1}}', b'{"usage":[1]}', b"[1]"])
def test_a_stream_of_another_shape_is_no_crash(event: bytes) -> None:
    """Each request of the load is then classed as what it is."""
    stream = b"data: " + event + b"\n\ndata: [DONE]\n\n"
    with answering({"/v1/models": b'{"data":[{"id":"m"}]}', "/v1/completions": stream}) as server:
        api = Api(server)
        known = probe(api, look(api, "", LOAD), LOAD)

    assert (known.usage, known.token_ids) == (False, False)


@pytest.mark.parametrize("load", [LOAD, CHAT], ids=["completions", "chat"])
def test_a_tokenizer_that_counts_something_else_is_none(load: Load) -> None:
    """One that knows no messages counts an empty prompt."""
    answers = {"/v1/models": b'{"data":[{"id":"m"}]}', "/tokenize": b'{"tokens":[1,2]}'}
    with answering(answers) as server:
        known = look(Api(server), "", load)

    assert (known.tokenize, known.token_prompts, known.corpus.exact) == (False, False, False)


def test_what_is_no_openai_api_is_said(truth: Truth) -> None:
    with pytest.raises(UsageError) as caught:
        look(Api(parse_url(f"{truth.url}/nowhere")), "", LOAD)

    assert caught.value.message == "this is no OpenAI-compatible API"


def test_an_api_below_a_path_is_asked_there(truth: Truth) -> None:
    truth.config(prefix="/llm")

    assert found(truth).fallbacks == ()


def test_tls_is_checked_against_the_given_authority() -> None:
    with Truth(tls=True) as truth:
        assert look(Api(parse_url(truth.url, ca_file=truth.ca_file)), "", LOAD).model == "gt-model"
        with pytest.raises(UnreachableError) as caught:
            look(Api(parse_url(truth.url)), "", LOAD)

    assert "certificate" in str(caught.value.found)


def test_a_round_trip_is_measured_on_one_open_connection(truth: Truth) -> None:
    assert Api(parse_url(truth.url)).rtt_ms(3) is not None
