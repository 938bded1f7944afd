"""A stream counts as an answer only when it is whole."""

from __future__ import annotations

import http.server
import json
import threading
from typing import TYPE_CHECKING

import pytest

from orchestrator.errors import StepFailedError
from orchestrator.model.plan import Complete, Endpoint
from orchestrator.run.complete import complete, texts
from orchestrator.run.session import Session
from tests.unit.examples import INVENTORY, RECIPE
from tests.unit.fake_host import FakeHost

if TYPE_CHECKING:
    from collections.abc import Iterator


def chunk(**delta: str) -> str:
    return json.dumps({"choices": [{"delta": delta}]})


def test_the_role_chunk_is_no_token() -> None:
    """Rivals count it as the first token."""
    assert list(texts(iter([chunk(role="assistant", content=""), chunk(content="a"), "[DONE]"]))) == ["a"]


def test_reasoning_counts() -> None:
    """A reasoning model may think through all of a short answer."""
    assert list(texts(iter([chunk(reasoning_content="hm"), chunk(reasoning="so"), "[DONE]"]))) == ["hm", "so"]


def test_plain_completions_count() -> None:
    assert list(texts(iter([json.dumps({"choices": [{"text": "x"}]}), "[DONE]"]))) == ["x"]


def test_a_broken_engine_is_no_success_though_the_stream_ends_with_done() -> None:
    """vLLM answers 200, then an error event, then [DONE]."""
    broken = iter(
        [chunk(content="a"), json.dumps({"error": {"message": "EngineCore encountered an issue."}}), "[DONE]"]
    )

    with pytest.raises(StepFailedError, match="the stream carries an error"):
        list(texts(broken))


def test_a_cut_stream_is_no_success() -> None:
    with pytest.raises(StepFailedError, match="ended without"):
        list(texts(iter([chunk(content="a")])))


class Answering(http.server.BaseHTTPRequestHandler):
    """A model called `old` behind the key `old-key`."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = asked["model"] == "old" and self.headers["Authorization"] == "Bearer old-key"
        self.send_response(200 if known else 404)
        self.end_headers()
        self.wfile.write(
            b'data: {"choices": [{"delta": {"content": "Hi"}}]}\n\ndata: [DONE]\n\n' if known else b"{}"
        )

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def session() -> Iterator[Session]:
    """Its head has that model on 127.0.0.1:8001; this run puts up another one, with another key."""
    head = FakeHost(INVENTORY.head)
    with http.server.HTTPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        head.services["127.0.0.1", 8001] = ("127.0.0.1", server.server_port)
        found = {"spark-1": b"VLLM_API_KEY=old-key\n"}
        secrets = {"VLLM_API_KEY": "new-key"}
        yield Session(INVENTORY, RECIPE, {"spark-1": head}, print, secrets=secrets, secrets_found=found)
        server.shutdown()


def test_the_release_before_is_asked_by_its_own_name_and_with_its_own_key(session: Session) -> None:
    """On the way back the new recipe's words would call a pair broken that serves."""
    complete(Complete(5, Endpoint("old", "127.0.0.1", 8001)), session)


def test_an_api_that_refuses_the_connection_is_a_failed_proof(session: Session) -> None:
    """No bug, and no traceback: the engine has just died."""
    with pytest.raises(StepFailedError, match="no completion") as raised:
        complete(Complete(5), session)

    assert "ConnectionRefusedError" in str(raised.value.found)
