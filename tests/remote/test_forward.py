"""forwarded(): a real socket for clients that want one, carried by the node's SSH connection."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from orchestrator.errors import StepFailedError, UnreachableError
from orchestrator.remote.forward import forwarded
from tests.remote.conftest import free_port, node, open_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.remote.connection import FabricHost
    from tests.remote.conftest import Client, Sshd


class Echo(socketserver.BaseRequestHandler):
    """Sends back what comes, and `bye` when the other side has said its last."""

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            while data := self.request.recv(65536):
                self.request.sendall(data)
            self.request.sendall(b"bye")


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 256
    block_on_close = False


@pytest.fixture
def port() -> Iterator[int]:
    with Server(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
def place(host: FabricHost, port: int) -> Iterator[tuple[str, int]]:
    with forwarded(host, "127.0.0.1", port) as place:
        yield place


def connect(place: tuple[str, int]) -> socket.socket:
    opened = socket.create_connection(place, 30)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def read(opened: socket.socket, size: int) -> bytes:
    """So many bytes, or all up to the end."""
    parts = []
    while size > 0 and (part := opened.recv(min(size, 65536))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def test_64_connections_carry_their_own_messages(place: tuple[str, int]) -> None:
    """A level of 64 requests at once; many small messages, as a stream of tokens is."""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(connect(place)) for _ in range(64)]

        def talk(number: int) -> bool:
            messages = [f"{number} says {count}\n".encode() for count in range(50)]
            echoed = []
            for message in messages:
                opened[number].sendall(message)
                echoed.append(read(opened[number], len(message)))
            return echoed == messages

        with ThreadPoolExecutor(64) as pool:
            assert all(pool.map(talk, range(64)))


def test_more_than_a_channel_holds_comes_back_whole(place: tuple[str, int]) -> None:
    """Both windows fill up, 2 MiB each: whoever is slow must be waited for, in both directions."""
    sent = bytes(range(256)) * 40_000
    with connect(place) as opened, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(opened.sendall, sent)

        assert read(opened, len(sent)) == sent
        sending.result()


def test_a_slow_reader_does_not_hold_up_the_others(place: tuple[str, int]) -> None:
    with connect(place) as slow, connect(place) as quick, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(slow.sendall, b"x" * 20_000_000)
        quick.sendall(b"hello")

        assert read(quick, 5) == b"hello"
        slow.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            sending.result()


def test_a_side_that_has_said_its_last_still_hears(place: tuple[str, int]) -> None:
    with connect(place) as opened:
        opened.sendall(b"last words")
        opened.shutdown(socket.SHUT_WR)

        assert read(opened, 1000) == b"last wordsbye"


def test_the_servers_end_is_seen(host: FabricHost) -> None:
    """vLLM closes an idle connection after 5 s: the client must see that before it sends on it."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        forwarded(host, *server.getsockname()) as place,
        connect(place) as opened,
    ):
        server.accept()[0].close()  # the first look whether anybody listens
        server.accept()[0].close()

        assert opened.recv(10) == b""


def test_the_server_sees_that_a_client_left(host: FabricHost) -> None:
    """A request that is given up must not go on in the engine."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        forwarded(host, *server.getsockname()) as place,
    ):
        server.accept()[0].close()
        connect(place).close()
        accepted, _ = server.accept()
        with accepted:
            accepted.settimeout(20)

            assert accepted.recv(10) == b""


def test_nothing_is_open_after_the_end(host: FabricHost, port: int) -> None:
    with forwarded(host, "127.0.0.1", port) as place:
        opened = connect(place)
        opened.sendall(b"a")
        read(opened, 1)

    with opened, pytest.raises(ConnectionResetError):
        opened.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connect(place)


def test_a_lost_link_resets_the_connections(host: FabricHost, port: int, sshd: Sshd) -> None:
    """Not an end of the stream: that could pass for a whole answer."""
    with forwarded(host, "127.0.0.1", port) as place, connect(place) as opened:
        opened.sendall(b"a")
        read(opened, 1)
        host.close()

        with pytest.raises(ConnectionResetError):
            opened.recv(1)


def test_a_server_that_stops_to_listen_resets_new_connections(host: FabricHost) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, forwarded(host, *server.getsockname()) as place:
        server.close()

        with connect(place) as opened, pytest.raises(ConnectionResetError):
            opened.recv(1)


def test_nobody_listening_is_said_at_once(host: FabricHost) -> None:
    with pytest.raises(UnreachableError) as caught, forwarded(host, "127.0.0.1", free_port()):
        pass

    assert caught.value.at == "spark-1"


def test_a_server_that_forbids_forwarding_is_named(make_sshd, client: Client, port: int) -> None:
    sshd = make_sshd("AllowTcpForwarding no")
    client.trust(sshd)

    with (
        open_hosts([node("spark-1")], client.environment) as hosts,
        pytest.raises(StepFailedError) as caught,
        forwarded(hosts["spark-1"], "127.0.0.1", port),
    ):
        pass

    assert caught.value.hint == "`AllowTcpForwarding local` in its /etc/ssh/sshd_config"


def test_sessions_and_forwards_have_limits_of_their_own(make_sshd, client: Client, port: int) -> None:
    """MaxSessions counts commands alone: 16 connections pass a server that allows one."""
    sshd = make_sshd("MaxSessions 1")
    client.trust(sshd)

    with (
        open_hosts([node("spark-1")], client.environment) as hosts,
        forwarded(hosts["spark-1"], "127.0.0.1", port) as place,
        contextlib.ExitStack() as stack,
    ):
        opened = [stack.enter_context(connect(place)) for _ in range(16)]
        for one in opened:
            one.sendall(b"a")

        assert [read(one, 1) for one in opened] == [b"a"] * 16
