"""Questions to an OpenAI-compatible server of which none is timed: what it serves, and what it can do."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import statistics
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.bench.stream import said
from orchestrator.client.server import api_path, headers, ssl_context
from orchestrator.errors import SparkDeployError, UnreachableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator.client.server import Server

ANSWER_LIMIT_S = 30
MOST_BYTES = 64 * 1024**2  # of one answer: a stream without an end would fill the memory
NOT_NOW = (429, 502, 503, 504)


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes

    def json(self) -> Any:
        """None where it is no JSON."""
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(self.body)
        return None

    @property
    def said(self) -> str:
        """The server's own words."""
        return said(self.body)


@dataclass(frozen=True)
class Model:
    """One entry of /v1/models."""

    id: str
    root: str = ""  # vLLM: the Hub id or the folder
    max_model_len: int | None = None
    owner: str = ""  # vLLM and SGLang give their own names


class Api:
    """One server. Every question has a connection of its own."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, limit_s: float = ANSWER_LIMIT_S
    ) -> Answer:
        """Ask, and read the whole answer. Raises UnreachableError: none came."""
        with self._connected(limit_s) as connection:
            return self._ask(connection, method, path, body)

    def models(self) -> tuple[Model, ...]:
        """Give what is served. Raises UsageError: the key is wrong, or there is no such API."""
        answer = self.ask("GET", api_path(self.server, "/models"))
        self.refuse_key(answer)
        told = answer.json()
        data = told.get("data") if isinstance(told, dict) else None
        if not isinstance(data, list):
            if answer.status in NOT_NOW:
                raise UnreachableError(
                    f"{self.server.url} does not serve now",
                    at=self.server.url,
                    found=f"GET /v1/models: {answer.status} {answer.said}",
                    hint="wait until it has loaded, or has less to do",
                )
            raise UsageError(
                "this is no OpenAI-compatible API",
                at=self.server.url,
                found=f"GET /v1/models: {answer.status} {answer.said}",
                hint="--url http://HOST:PORT, as in the first lines of the server's log",
            )
        return tuple(_model(entry) for entry in data if isinstance(entry, dict) and _named(entry))

    def version(self) -> str:
        """vLLM's; "" where the server does not tell."""
        told = self.ask("GET", f"{self.server.path}/version").json()
        return str(told.get("version", "")) if isinstance(told, dict) else ""

    def metrics(self) -> str | None:
        """Give the text of /metrics, None where there is none."""
        answer = self.ask("GET", f"{self.server.path}/metrics")
        return answer.body.decode("utf-8", "replace") if answer.status == http.client.OK else None

    def tokenize(self, model: str, asked: Mapping[str, Any]) -> tuple[int, ...]:
        """
        Give the ids of a `prompt` or of `messages`, none where the server has no /tokenize that we know.

        vLLM 0.17 to 0.33 and SGLang answer {"count": N, "tokens": [...]}; llama.cpp's wants `content`.
        """
        answer = self.ask("POST", f"{self.server.path}/tokenize", {"model": model, **asked})
        told = answer.json() if answer.status == http.client.OK else None
        ids = told.get("tokens") if isinstance(told, dict) else None
        return tuple(ids) if isinstance(ids, list) and all(isinstance(one, int) for one in ids) else ()

    def rtt_ms(self, times: int = 5) -> float | None:
        """Give the median of small requests on one open connection; None where the server closes it each time."""
        with contextlib.suppress(SparkDeployError), self._connected(ANSWER_LIMIT_S) as connection:
            taken = []
            for _ in range(times + 1):
                began = time.perf_counter()
                self._ask(connection, "GET", f"{self.server.path}/health")
                taken.append(time.perf_counter() - began)
            return 1000 * statistics.median(taken[1:])  # the first also waited for the connection
        return None

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
    ) -> Answer:
        content = {} if body is None else {"content-type": "application/json"}
        raw = None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, raw, {**headers(self.server), **content})
            with connection.getresponse() as response:
                return Answer(response.status, _body(response))
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error

    @contextlib.contextmanager
    def _connected(self, limit_s: float) -> Iterator[http.client.HTTPConnection]:
        connection = http.client.HTTPConnection(self.server.host, self.server.port, timeout=limit_s)
        connection.auto_open = 0  # it would dial anew, and not where a forward is
        try:
            connection.sock = self._dial(limit_s)
        except OSError as error:
            raise self._unreachable(error) from error
        with contextlib.closing(connection), self._at_most(limit_s, connection.sock):
            yield connection

    @contextlib.contextmanager
    def _at_most(self, limit_s: float, sock: socket.socket) -> Iterator[None]:
        """Raise UnreachableError after *limit_s*: a byte a second would keep any timeout of the socket away."""
        over = threading.Event()
        timer = threading.Timer(limit_s, _cut, (sock, over))
        timer.daemon = True
        timer.start()
        try:
            yield
        except UnreachableError:
            if not over.is_set():
                raise
        finally:
            timer.cancel()
        if over.is_set():
            raise self._unreachable(TimeoutError(f"no whole answer within {limit_s:g} s"))

    def _dial(self, limit_s: float) -> socket.socket:
        context = ssl_context(self.server)
        opened = socket.create_connection(self.server.address, min(limit_s, ANSWER_LIMIT_S))
        opened.settimeout(limit_s)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return context.wrap_socket(opened, server_hostname=self.server.host) if context else opened

    def _unreachable(self, error: Exception) -> UnreachableError:
        found = getattr(error, "strerror", None) or str(error) or type(error).__name__
        trust = isinstance(error, ssl.SSLCertVerificationError)
        return UnreachableError(
            f"{self.server.url} does not answer",
            at=self.server.url,
            found=found,
            hint="--ca-file FILE names who signed its certificate" if trust else None,
        )

    def refuse_key(self, answer: Answer) -> None:
        """Raise UsageError: the key is wrong, or there is none."""
        if answer.status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            raise UsageError(
                "the server refuses the API key" if self.server.key else "the server wants an API key",
                at=self.server.url,
                found=f"{answer.status} {answer.said}",
                hint="export SPARK_DEPLOY_API_KEY=…, or --api-key-env VARIABLE",
            )


def _cut(sock: socket.socket, over: threading.Event) -> None:
    over.set()
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)


def _body(response: http.client.HTTPResponse) -> bytes:
    """Raises OSError or HTTPException: it is not whole, or has no end."""
    body = response.read(MOST_BYTES)
    if len(body) == MOST_BYTES:
        raise OSError(f"an answer of more than {MOST_BYTES / 1024**2:.0f} MiB")
    if response.length:  # read() with a size does not look
        raise http.client.IncompleteRead(body, response.length)
    if 300 <= response.status < 400:  # none is followed: the key would go elsewhere
        return f"to {response.headers.get('location', 'nowhere')}".encode()
    return body


def _named(entry: Mapping[str, Any]) -> bool:
    return isinstance(entry.get("id"), str)


def _model(entry: Mapping[str, Any]) -> Model:
    length = entry.get("max_model_len")
    return Model(
        str(entry.get("id", "")),
        str(entry.get("root") or ""),
        length if type(length) is int else None,  # True is one, too
        str(entry.get("owned_by") or ""),
    )
