"""
One socket to the server, one request at a time; every read is stamped. Nothing is interpreted but HTTP's framing.
"""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Literal

import httptools

from orchestrator.bench.stream import begun
from orchestrator.client.stamps import KERNEL_STAMPS, SO_TIMESTAMPNS, STAMP_BYTES, Receiver

if TYPE_CHECKING:
    import ssl

    from orchestrator.client.server import Server

    End = Literal["complete", "disconnect", "timeout", "stall"]

MOST_BYTES = 128 * 1024**2  # of one answer
# A socket that had been idle for as long (servers close those after seconds: uvicorn 5, gunicorn 2), and that ends
# this soon after a send without a byte, was closed before the request came there. Else the request is what broke.
_IDLE_NS = 500_000_000
_DIED_IDLE_NS = 1_000_000_000


class Answer:
    """What came back for one request. httptools calls the on_ methods."""

    def __init__(self) -> None:
        self.status = 0
        self.reads: list[tuple[int, bytes]] = []
        self.complete = False
        self.keep_alive = False
        self._bytes = 0
        self._framed = False  # else the body ends with the connection
        self.arrival_ns = 0  # of the bytes that the parser is fed
        self.parser = httptools.HttpResponseParser(self)

    def on_message_begin(self) -> None:
        if self.complete:
            raise ValueError("bytes after the answer")  # httptools makes an HttpParserError of it

    def on_header(self, name: bytes, _value: bytes) -> None:
        self._framed |= name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        self.status = self.parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self.reads.append((self.arrival_ns, body))
        self._bytes += len(body)
        if self._bytes > MOST_BYTES:  # max_tokens is not heeded, and nothing would end before the memory does
            raise ValueError(f"an answer of more than {MOST_BYTES / 1024**2:.0f} MiB")

    def on_message_complete(self) -> None:
        if self.status < 200:  # 100 Continue, 103 Early Hints: the answer is still to come
            self.status = 0
            return
        self.complete = True
        self.keep_alive = self.parser.should_keep_alive()

    def ends_with_connection(self) -> bool:
        return self.status >= 200 and not self._framed

    def release(self) -> None:
        """Break the cycle of parser and answer: no garbage is collected during a level."""
        del self.parser


class Connection:
    """An open socket. Its two kinds below differ in how they read and write."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.open = True
        self.answer = Answer()
        self.sent_ns = self.last_ns = time.monotonic_ns()  # the request; the last bytes, or else the request
        self.died_idle = False  # it had been closed before the request came there
        self._idle_ns = 0  # before the request
        self._begun = False
        self._done: asyncio.Future[tuple[End, str]] | None = None

    async def exchange(self, request: bytes) -> tuple[End, str]:
        """Send *request* and wait for the end of what is then in `answer`: how it ended, and why if it broke."""
        self.answer, self._begun = Answer(), False
        done: asyncio.Future[tuple[End, str]] = asyncio.get_running_loop().create_future()
        self._done = done
        self.sent_ns = time.monotonic_ns()
        self._idle_ns, self.last_ns = self.sent_ns - self.last_ns, self.sent_ns
        self.write(request)
        try:
            return await done
        finally:
            self._done = None
            self.answer.release()

    def end(self, end: End, detail: str = "") -> None:
        """End the exchange. After anything but a complete answer, the socket is not used again."""
        if end != "complete" or not self.answer.keep_alive:
            self.close()
        if self._done and not self._done.done():
            quick = self.last_ns == self.sent_ns > time.monotonic_ns() - _DIED_IDLE_NS
            self.died_idle = quick and end == "disconnect" and self._idle_ns > _IDLE_NS
            self._done.set_result((end, detail))
            self._done = None

    def received(self, data: bytes | memoryview, arrival_ns: int) -> None:
        if self._done is None:  # bytes that nobody asked for
            self.close()
            return
        self.last_ns = self.answer.arrival_ns = arrival_ns
        try:
            self.answer.parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.close()
            if not self.answer.complete:
                self.end("disconnect", f"not HTTP: {error}")
        if self.answer.complete:
            self.end("complete")

    def lost(self, error: Exception | None) -> None:
        """The server closed the socket, or *error* did."""
        if error is None and self.answer.ends_with_connection():
            self.end("complete")
        else:
            self.end("disconnect", str(error or "the server closed the connection"))

    def begun(self) -> bool:
        """Whether a token came. Looked at only where nothing came for long."""
        self._begun = self._begun or begun(self.answer.reads)
        return self._begun

    def poke(self) -> None:
        """Read what the event loop may not have told of."""

    def alive(self) -> bool:
        """Whether the server, as far as is known here, still holds its end open."""
        raise NotImplementedError

    def write(self, request: bytes) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class StampedConnection(Connection):
    """Plain http on Linux."""

    def __init__(self, receiver: Receiver, sock: socket.socket) -> None:
        super().__init__(receiver)
        self._socket = sock
        self._rest = memoryview(b"")
        self._loop = asyncio.get_running_loop()
        self._buffers = (receiver.buffer,)
        receiver.stamped = True
        self._loop.add_reader(sock, self._readable)

    def alive(self) -> bool:
        """An idle socket has nothing to read: not even the end."""
        if self.open and not self._rest:  # answered before it was sent whole: the rest is no new request
            try:
                self._socket.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                return True
            except OSError:
                pass
        return False

    def write(self, request: bytes) -> None:
        self._rest = memoryview(request)
        if self._flush():
            self._loop.add_writer(self._socket, self._writable)

    def _writable(self) -> None:
        if not self._flush() and self.open:
            self._loop.remove_writer(self._socket)

    def _flush(self) -> bool:
        """Whether something is left that the kernel would not take yet."""
        try:
            self._rest = self._rest[self._socket.send(self._rest) :]
        except BlockingIOError:
            return True
        except OSError:  # reading tells why, and may bring an answer first: 413
            return False
        return bool(self._rest)

    def poke(self) -> None:
        """uvloop tells of a reset but once, and that once may have gone into bytes that came before it."""
        if self.open:
            self._readable()

    def _readable(self) -> None:
        try:
            size, ancillary, _, _ = self._socket.recvmsg_into(self._buffers, STAMP_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self.lost(error)
            return
        if size:
            self.received(self.receiver.buffer[:size], self.receiver.arrival_ns(ancillary))
        else:
            self.lost(None)

    def close(self) -> None:
        if self.open:
            self.open = False
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()


class StreamConnection(Connection, asyncio.Protocol):
    """TLS, and every other system."""

    _transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # one of a socket is a Transport

    def data_received(self, data: bytes) -> None:
        self.received(data, time.monotonic_ns())

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        self.lost(error)

    def alive(self) -> bool:
        return self.open and not self._transport.get_write_buffer_size()

    def write(self, request: bytes) -> None:
        self._transport.write(request)

    def close(self) -> None:
        self.open = False
        self._transport.abort()


async def dial(
    server: Server, context: ssl.SSLContext | None, receiver: Receiver, *, stamped: bool = KERNEL_STAMPS
) -> Connection:
    """
    Open a connection: no byte of a request is sent yet.

    Raises:
        OSError: refused, no route, no such name, a certificate that is not trusted.
    """
    sock = await _connected(server.address)
    if context is None and stamped:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        return StampedConnection(receiver, sock)
    name = server.host if context else None
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(
        lambda: StreamConnection(receiver), sock=sock, ssl=context, server_hostname=name
    )
    return connection


async def _connected(address: tuple[str, int]) -> socket.socket:
    loop = asyncio.get_running_loop()
    failure: OSError = OSError(f"{address[0]} has no address")
    for family, kind, protocol, _, target in await loop.getaddrinfo(*address, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, target)
        except BaseException as error:
            sock.close()
            if not isinstance(error, OSError):  # cancelled: by a time limit, by Ctrl-C
                raise
            failure = error
        else:
            return sock
    raise failure
