"""Servers that break what HTTP, SSE or OpenAI's API say: an operator is told so, and never waits without end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from orchestrator.client.api import Api
from orchestrator.client.drive import Driven, closed_loop, run
from orchestrator.client.server import parse_url
from orchestrator.errors import UnreachableError, UsageError
from orchestrator.model.bench import ClientHealth, Received
from orchestrator.run.results import Folder
from orchestrator.run.sweep import Sweep
from tests.bench.test_command import SMALL, Operator
from tests.truth.client import Truth

Answering = Callable[[BaseHTTPRequestHandler], None]


@contextmanager
def server(answering: Answering) -> Iterator[str]:
    """The URL of one that answers whatever it is asked by *answering*."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            answering(self)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            answering(self)

        def log_message(self, *_: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """The client hung up, as it should."""

    with Quiet(("127.0.0.1", 0), Handler) as opened:
        opened.daemon_threads = False  # joined at the end
        thread = threading.Thread(target=opened.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{opened.server_port}"
        finally:
            opened.shutdown()
            thread.join()


def told(call: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
    call.send_response(status)
    for name, value in {**headers, "content-length": str(len(body))}.items():
        call.send_header(name, value)
    call.end_headers()
    call.wfile.write(body)


def models(*entries: object) -> bytes:
    return json.dumps({"data": entries}).encode()


def endless(call: BaseHTTPRequestHandler) -> None:
    """What ends is the connection."""
    call.send_response(200)
    call.end_headers()
    try:
        while True:
            call.wfile.write(bytes(1 << 20))
    except OSError:
        call.close_connection = True


def streams(name: str) -> Answering:
    """A small server whose model has this *name*."""

    def answering(call: BaseHTTPRequestHandler) -> None:
        if call.command == "GET":
            known = call.path == "/v1/models"
            told(call, models({"id": name}) if known else b"", 200 if known else 404)
        elif "tokenize" in call.path:
            told(call, b"", 404)
        else:
            usage = {"prompt_tokens": 48, "completion_tokens": 4}
            choice = {"text": " a b c d", "finish_reason": "length"}
            event = json.dumps({"choices": [choice], "usage": usage})
            told(call, f"data: {event}\n\ndata: [DONE]\n\n".encode())

    return answering


def test_models_nested_a_hundred_thousand_deep_are_no_api_and_no_traceback() -> None:
    with server(lambda call: told(call, b"[" * 100_000)) as url, pytest.raises(UsageError) as caught:
        Api(parse_url(url)).models()

    assert caught.value.message == "this is no OpenAI-compatible API"


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_is_busy_or_still_loads_is_not_called_a_wrong_url(status: int) -> None:
    """A script that waits for it goes by the exit code."""
    answering = lambda call: told(call, b'{"error": "loading"}', status)  # noqa: E731
    with server(answering) as url, pytest.raises(UnreachableError) as caught:
        Api(parse_url(url)).models()

    assert caught.value.found == f"GET /v1/models: {status} loading"


def test_a_redirect_says_where_to() -> None:
    """It is not followed: the API key would go there too."""
    answering = lambda call: told(call, b"moved", 308, location="https://there/v1/models")  # noqa: E731
    with server(answering) as url, pytest.raises(UsageError) as caught:
        Api(parse_url(url)).models()

    assert caught.value.found == "GET /v1/models: 308 to https://there/v1/models"


def test_models_without_a_name_are_none() -> None:
    """`--model None` would be the hint."""
    with server(lambda call: told(call, models({"id": None}, {"id": ["a"]}, None, {"id": "m"}))) as url:
        found = Api(parse_url(url)).models()

    assert [model.id for model in found] == ["m"]


def test_a_length_that_is_true_is_no_length() -> None:
    """In Python it is 1: `at most True (its max-model-len)`."""
    with server(lambda call: told(call, models({"id": "m", "max_model_len": True}))) as url:
        (model,) = Api(parse_url(url)).models()

    assert model.max_model_len is None


def test_an_answer_that_trickles_is_not_waited_for_without_end() -> None:
    """Each byte begins the socket's own timeout anew."""
    never = threading.Event()

    def trickle(call: BaseHTTPRequestHandler) -> None:
        call.send_response(200)
        call.send_header("content-length", "1000000")
        call.end_headers()
        while not never.wait(0.02):  # until the client hangs up
            call.wfile.write(b"x")

    with server(trickle) as url, pytest.raises(UnreachableError) as caught:
        Api(parse_url(url)).ask("GET", "/metrics", limit_s=0.3)

    assert caught.value.found == "no whole answer within 0.3 s"


def test_an_answer_without_end_does_not_fill_the_memory() -> None:
    with server(endless) as url, pytest.raises(UnreachableError) as caught:
        Api(parse_url(url)).ask("GET", "/metrics")

    assert caught.value.found == "an answer of more than 64 MiB"


def test_an_answer_that_was_cut_is_none() -> None:
    """Half of /metrics would be read as counters that fell."""

    def cut(call: BaseHTTPRequestHandler) -> None:
        call.send_response(200)
        call.send_header("content-length", "1000")
        call.end_headers()
        call.wfile.write(b"half")
        call.close_connection = True

    with server(cut) as url, pytest.raises(UnreachableError):
        Api(parse_url(url)).ask("GET", "/metrics")


def test_a_stream_without_end_is_a_broken_request_and_not_all_of_the_memory() -> None:
    """A server that does not heed max_tokens."""
    with server(endless) as url:
        driven = run(closed_loop(parse_url(url), "/v1/completions", iter([b"{}"]), 1))

    assert [one.end for one in driven.received] == ["disconnect"]


class Silent:
    """A server whose first answer never ended."""

    server = parse_url("http://127.0.0.1:9")

    def first_request(self) -> Driven:
        received = Received(0, 0, 200, (), 60 * 10**9, "stall", "nothing came for 60 s")
        return Driven((received,), 0, 0, 0.0, ClientHealth())


def test_a_first_request_that_stalled_ends_the_run_at_once(tmp_path: Path) -> None:
    """Eight questions about the server's abilities would wait ten minutes each."""
    silent: Any = Silent()
    sweep = Sweep(silent, lambda *_, **__: None, Folder(tmp_path), "", lambda level: level)

    with pytest.raises(UnreachableError) as caught:
        sweep.first_request(lambda: str)

    assert caught.value.found == "nothing came for 60 s"


def test_half_a_surrogate_pair_in_a_name_does_not_cost_the_result(tmp_path: Path) -> None:
    """JSON can say it, UTF-8 cannot: the sweep was measured, and could not be written."""
    operator = Operator(tmp_path)
    with server(streams("m\ud800")) as url:
        ended = operator.bench("--url", url, "--out", str(operator.out), *SMALL)

    assert "Traceback" not in ended.stderr
    assert operator.result()["deployment"]["model"] == "m?"


def test_more_levels_than_sockets_is_no_lost_server(tmp_path: Path) -> None:
    """`ulimit -n` is the client's, and raised as far as it goes."""
    words = ("-m", "orchestrator", "bench", "--url", "http://127.0.0.1:9", "--levels", "128")
    environment: Mapping[str, str] = {**os.environ, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    ended = subprocess.run(
        ["sh", "-c", 'ulimit -n 64 && exec "$0" "$@"', sys.executable, *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (ended.returncode, "64 open files are allowed" in ended.stderr) == (2, True), ended.stderr


def test_a_certificate_that_is_not_trusted_names_the_option() -> None:
    with Truth(tls=True) as truth, pytest.raises(UnreachableError) as caught:
        Api(parse_url(truth.url)).models()

    assert caught.value.hint == "--ca-file FILE names who signed its certificate"
