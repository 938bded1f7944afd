"""open_tcp(): what http.client needs of a socket, through the SSH connection."""

from __future__ import annotations

import http.client
import http.server
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from orchestrator.errors import StepFailedError
from tests.remote.conftest import free_port, node, open_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.remote.connection import FabricHost
    from tests.remote.conftest import Client


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        if self.path == "/close":
            self.send_header("Connection", "close")
        self.end_headers()
        for chunk in (body, b"data: [DONE]\n", b""):
            self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def post(connection: http.client.HTTPConnection, path: str, body: bytes) -> bytes:
    connection.request("POST", path, body)
    return connection.getresponse().read()


def test_one_tunnel_carries_several_requests(host: FabricHost, port: int) -> None:
    connection = http.client.HTTPConnection("node")
    with host.open_tcp("127.0.0.1", port, 10) as connection.sock:
        answers = [post(connection, "/", body) for body in (b"one\n", b"x" * 300_000)]

    assert answers == [b"one\ndata: [DONE]\n", b"x" * 300_000 + b"data: [DONE]\n"]


def test_an_answer_that_closes_is_read_to_its_end(host: FabricHost, port: int) -> None:
    """http.client closes the socket first and reads the body then: more of it than a channel holds, 2 MiB."""
    connection = http.client.HTTPConnection("node")
    connection.sock = host.open_tcp("127.0.0.1", port, 10)

    assert len(post(connection, "/close", b"x" * 5_000_000)) == len(b"data: [DONE]\n") + 5_000_000


def test_lines_of_a_stream_can_be_read_one_by_one(host: FabricHost, port: int) -> None:
    connection = http.client.HTTPConnection("node")
    with host.open_tcp("127.0.0.1", port, 10) as connection.sock:
        connection.request("POST", "/", b"first\n")
        response = connection.getresponse()
        lines = [response.readline(), response.readline(), response.readline()]

    assert lines == [b"first\n", b"data: [DONE]\n", b""]


def test_nobody_listening_is_connection_refused(host: FabricHost) -> None:
    """A vLLM that still loads: not a failure, and not an unreachable node."""
    with pytest.raises(ConnectionRefusedError):
        host.open_tcp("127.0.0.1", free_port(), 10)


def test_an_answer_that_does_not_come_is_a_timeout(host: FabricHost) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        host.open_tcp("127.0.0.1", server.getsockname()[1], 10) as tunnel,
    ):
        tunnel.settimeout(0.2)

        with pytest.raises(TimeoutError):
            tunnel.recv(1)


def test_shutdown_frees_a_thread_that_waits(host: FabricHost) -> None:
    """Ctrl-C while a completion streams."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        host.open_tcp("127.0.0.1", server.getsockname()[1], 60) as tunnel,
    ):
        got: list[bytes] = []
        waiter = threading.Thread(target=lambda: got.append(tunnel.makefile("rb").read(1)))
        waiter.start()
        tunnel.shutdown(socket.SHUT_RDWR)
        waiter.join(20)

        assert got == [b""]


def test_a_server_that_forbids_forwarding_is_named(make_sshd, client: Client, port: int) -> None:
    sshd = make_sshd("AllowTcpForwarding no")
    client.trust(sshd)

    with (
        open_hosts([node("spark-1")], client.environment) as hosts,
        pytest.raises(StepFailedError) as caught,
    ):
        hosts["spark-1"].open_tcp("127.0.0.1", port, 10)

    assert caught.value.hint == "`AllowTcpForwarding local` in its /etc/ssh/sshd_config"
