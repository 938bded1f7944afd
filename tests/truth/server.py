"""Sockets and epoll: one thread, one core, nothing that waits."""

from __future__ import annotations

import select
import socket
import ssl
import struct
import time
from typing import TYPE_CHECKING

from .clock import Timeline, now
from .engine import Engine
from .http import Call, take
from .options import Options

if TYPE_CHECKING:
    from collections.abc import Callable

    from .record import Record
    from .stream import Stream

BUSY = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
RESET = struct.pack("ii", 1, 0)  # SO_LINGER: close() sends RST
SO_TIMESTAMPNS = 35
BACKLOG = 2048


class Connection:
    """*control* connections are those of the test, not of the client: neither counted nor encrypted."""

    __slots__ = ("buffer", "closes", "control", "fd", "number", "out", "served", "socket", "stream", "t_conn")

    def __init__(self, accepted: socket.socket, number: int, *, control: bool) -> None:
        self.socket, self.fd, self.number, self.control = accepted, accepted.fileno(), number, control
        self.buffer, self.out = b"", bytearray()
        self.stream: Stream | None = None
        self.closes, self.served, self.t_conn = False, 0, now()


class Server:
    """*route* answers a call; *tls* encrypts what clients send."""

    def __init__(
        self,
        options: Options,
        route: Callable[[Server, Connection, Call, float], None],
        *,
        port: int = 0,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.engine, self.timeline = Engine(options), Timeline()
        self._route, self._tls, self._host = route, tls, host
        self._poll = select.epoll()
        self._poll.register(self.timeline.fd, select.EPOLLIN)
        self._connections: dict[int, Connection] = {}
        self._control = self._listening(0)
        self._main: socket.socket | None = self._listening(port)
        self.port, self.control_port = self._main.getsockname()[1], self._control.getsockname()[1]

    # ------------------------------------------------------------------ the loop

    def run(self) -> None:
        while True:
            for fd, event in self._poll.poll(-1, 256):
                if fd == self.timeline.fd:
                    self.timeline.fire()
                elif fd == self._control.fileno():
                    self._accepted(self._control, control=True)
                elif self._main is not None and fd == self._main.fileno():
                    self._accepted(self._main, control=False)
                elif (connection := self._connections.get(fd)) is not None:
                    self._ready(connection, event)

    def _ready(self, connection: Connection, event: int) -> None:
        if event & select.EPOLLOUT and connection.out:
            self._flush(connection)
        if event & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR) and self._is_open(connection):
            self._read(connection)

    def _accepted(self, listener: socket.socket, *, control: bool) -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except BlockingIOError:
                return
            accepted.setblocking(False)
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None and not control:
                accepted = self._tls.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
            else:
                accepted.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            self.engine.connections += not control
            connection = Connection(accepted, self.engine.connections, control=control)
            self._connections[connection.fd] = connection
            self._poll.register(connection.fd, select.EPOLLIN)
            if not control:
                self._watch_idle(connection)

    def _read(self, connection: Connection) -> None:
        try:
            data, arrived = self._received(connection)
        except BUSY:
            return
        except OSError:
            data, arrived = b"", 0.0
        if not data:
            self.drop(connection)
            return
        connection.buffer += data
        while self._is_open(connection) and connection.stream is None:
            call, connection.buffer = take(connection.buffer)
            if call is None:
                return
            connection.closes = call.closes
            self._route(self, connection, call, arrived)

    def _received(self, connection: Connection) -> tuple[bytes, float]:
        """
        What came, and when the kernel got the last of it.

        A burst of requests waits for us; that must not be taken for the client's delay.
        """
        if isinstance(connection.socket, ssl.SSLSocket):
            data = connection.socket.recv(1 << 16)
            while connection.socket.pending():
                data += connection.socket.recv(1 << 16)
            return data, now()
        data, extra, _, _ = connection.socket.recvmsg(1 << 16, 64)
        offset_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC) - time.time_ns()
        for level, kind, stamp in extra:
            if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS:
                seconds, nanoseconds = struct.unpack("qq", stamp)
                return data, (seconds * 10**9 + nanoseconds + offset_ns) / 1e9
        return data, now()

    # ------------------------------------------------------------------ writing

    def send(self, connection: Connection, data: bytes, record: Record | None = None) -> None:
        if not self._is_open(connection):
            return
        size = 0
        if not connection.out:
            try:
                size = connection.socket.send(data)
            except BUSY:
                size = 0
            except OSError:
                self.drop(connection)
                return
        if size < len(data):
            connection.out += data[size:]
            self._poll.modify(connection.fd, select.EPOLLIN | select.EPOLLOUT)
            if record is not None:
                record.blocked += 1

    def _flush(self, connection: Connection) -> None:
        try:
            del connection.out[: connection.socket.send(connection.out)]
        except BUSY:
            return
        except OSError:
            self.drop(connection)
            return
        if not connection.out:
            self._poll.modify(connection.fd, select.EPOLLIN)
            if connection.closes and connection.stream is None:
                self.drop(connection)

    def answered(self, connection: Connection) -> None:
        """An answer is complete: close, or wait for the next request."""
        connection.served += 1
        if connection.closes and not connection.out:
            self.drop(connection)
        elif not connection.control:
            self._watch_idle(connection)

    # ------------------------------------------------------------------ the ends

    def drop(self, connection: Connection, *, reset: bool = False) -> None:
        if not self._is_open(connection):
            return
        del self._connections[connection.fd]
        self._poll.unregister(connection.fd)
        if reset:
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        connection.socket.close()
        if connection.stream is not None:
            connection.stream.record.client_gone = True
            connection.stream.finish()

    def die(self) -> None:
        """As if the process were gone; only the control port goes on."""
        self.refuse()
        for connection in list(self._connections.values()):
            if not connection.control:
                self.drop(connection)

    def refuse(self) -> None:
        """New connections are refused; open ones stay."""
        if self._main is not None:
            self._poll.unregister(self._main.fileno())
            self._main.close()
            self._main = None

    def listen(self) -> None:
        if self._main is None:
            self._main = self._listening(self.port)

    def _watch_idle(self, connection: Connection) -> None:
        if after_s := self.engine.options.idle_close:
            self.timeline.at(now() + after_s, self._idle, (connection, connection.served))

    def _idle(self, watched: tuple[Connection, int], _: float) -> None:
        connection, served = watched
        if connection.served == served and connection.stream is None:
            self.drop(connection)

    def _is_open(self, connection: Connection) -> bool:
        return self._connections.get(connection.fd) is connection

    def _listening(self, port: int) -> socket.socket:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((self._host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
        self._poll.register(listener.fileno(), select.EPOLLIN)
        return listener
