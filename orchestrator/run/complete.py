"""The proof that a pair serves: one completion, streamed through the head's SSH connection."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.errors import StepFailedError, UnreachableError
from orchestrator.model.plan import Endpoint
from orchestrator.run.secrets import parse_secrets

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Mapping

    from orchestrator.errors import SparkDeployError
    from orchestrator.model.plan import Complete
    from orchestrator.remote.host import Host
    from orchestrator.run.session import Session

TOKENS = 16
PROMPT = "Say hello."
CONNECT_LIMIT_S = 10
TEXT_KEYS = ("text", "content", "reasoning_content", "reasoning")  # of a plain completion, of a chat's delta


@dataclass(frozen=True)
class Streamed:
    """What came back: chunks that carried text, seconds to the first of them and to the end."""

    chunks: int
    first_s: float
    total_s: float


def complete(work: Complete, session: Session) -> None:
    """
    Stream one chat completion, or a plain one where the model has no chat template.

    Raises:
        StepFailedError: the answer is no whole stream of at least one token.
    """
    streamed = _stream_once(session, _endpoint(work, session), _key(work, session), work.limit_s)
    session.tell(
        "note",
        f"{streamed.chunks} chunks streamed, the first after {streamed.first_s:.2f} s",
        node=session.head.node.name,
        chunks=streamed.chunks,
        first_s=round(streamed.first_s, 3),
        total_s=round(streamed.total_s, 3),
    )


def _endpoint(work: Complete, session: Session) -> Endpoint:
    api = session.inventory.api
    return work.before or Endpoint(session.recipe.served_name, api.local, api.port)


def _key(work: Complete, session: Session) -> str:
    """The API key of the release that is asked: the one before may have had another."""
    found = session.secrets_found.get(session.inventory.head.name)
    return (parse_secrets(found) if work.before else session.secrets).get("VLLM_API_KEY", "")


def _stream_once(session: Session, endpoint: Endpoint, key: str, limit_s: float) -> Streamed:
    """
    Raises StepFailedError: no whole answer.

    UnreachableError: the SSH connection was lost meanwhile, so nobody knows.
    """
    host = session.head
    chat = {"messages": [{"role": "user", "content": PROMPT}]}
    for path, prompt in (("/v1/chat/completions", chat), ("/v1/completions", {"prompt": PROMPT})):
        body = {"model": endpoint.model, "max_tokens": TOKENS, "stream": True, **prompt}
        try:
            with host.open_tcp(endpoint.address, endpoint.port, CONNECT_LIMIT_S) as opened:
                opened.settimeout(limit_s)
                session.open_sockets.add(opened)
                streamed = _stream(opened, path, body, key, session.clock)
        except (OSError, http.client.HTTPException, ValueError) as error:
            found, wanted = f"{type(error).__name__}: {error}", f"an answer in {limit_s:.0f} s"
            raise _or_lost(host, StepFailedError("no completion", found=found, wanted=wanted)) from error
        except StepFailedError as error:
            raise _or_lost(host, error) from error
        finally:
            session.open_sockets.clear()
        if streamed:
            return streamed
    raise StepFailedError("the model answers neither chat nor plain completions")


def _or_lost(host: Host, error: StepFailedError) -> SparkDeployError:
    """Give *error*, or that the connection is gone, which explains it."""
    if host.alive():
        return error
    name = host.node.name
    return UnreachableError(f"the connection to {name} is lost", at=name, found=error.message)


def _stream(
    opened: socket.socket, path: str, body: Mapping[str, Any], key: str, clock: Callable[[], float]
) -> Streamed | None:
    """Give None: this model has no chat template."""
    began = clock()
    response = request(opened, "POST", path, body, key)
    if response.status in (400, 404) and "chat" in path and _no_chat(response):
        return None
    if response.status != http.client.OK:
        said = response.read(2000).decode("utf-8", "replace")
        raise StepFailedError(f"{path} answers {response.status}", found=said)
    times = [clock() - began for _ in texts(_events(response))]
    if not times:
        raise StepFailedError("the completion streamed no token", wanted="at least one")
    return Streamed(len(times), times[0], clock() - began)


def _no_chat(response: http.client.HTTPResponse) -> bool:
    return response.status == http.client.NOT_FOUND or b"chat template" in response.read(4000)


def request(
    opened: socket.socket, method: str, path: str, body: Mapping[str, Any] | None = None, key: str = ""
) -> http.client.HTTPResponse:
    """Send one HTTP request on a connection that is open already."""
    connection = http.client.HTTPConnection("spark-deploy")
    connection.sock = opened
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    return connection.getresponse()


def _events(response: http.client.HTTPResponse) -> Iterator[str]:
    while line := response.readline():
        if line.startswith(b"data:"):
            yield line[5:].strip().decode("utf-8", "replace")


def texts(events: Iterator[str]) -> Iterator[str]:
    """
    Give the text of each chunk of a stream that ends as it should.

    A broken engine shows as HTTP 200 with an error event, followed by [DONE] all the same
    (vLLM 0.32, measured); an end without [DONE] is a connection that was cut.

    Raises:
        StepFailedError: either of these.
    """
    for event in events:
        if event == "[DONE]":
            return
        chunk = json.loads(event)
        if "error" in chunk:
            found = str(chunk["error"].get("message", chunk["error"]))
            raise StepFailedError("the stream carries an error", found=found)
        for choice in chunk.get("choices", []):
            said = {**choice, **(choice.get("delta") or {})}
            if text := next(filter(None, map(said.get, TEXT_KEYS)), None):
                yield text
    raise StepFailedError("the stream ended without [DONE]", wanted="a whole answer")
