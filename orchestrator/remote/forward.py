"""A loopback port whose connections a node's SSH connection carries: for clients that want a real socket."""

from __future__ import annotations

import contextlib
import queue
import resource
import selectors
import socket
import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import paramiko

from orchestrator.errors import SparkDeployError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.remote.host import Host

OPEN_LIMIT_S = 10
AT_ONCE = 32  # channels that are opened side by side: each takes a round trip
FILES = 8192  # open ones: each connection takes four with its client's end, and 1,024 is a usual limit
CHUNK = 65536
FULL_WAIT_S = 0.005  # a channel has no sign for "can be written again", so a full one is asked this often
RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time: close() sends RST
READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


@contextlib.contextmanager
def forwarded(host: Host, address: str, port: int) -> Iterator[tuple[str, int]]:
    """
    Give the loopback address behind which *address*:*port* of the node answers.

    A local connection stands before its channel does: the first request on it also waits for that, one round trip.
    A connection that the node refuses, or that the SSH connection loses, is reset.

    Raises:
        StepFailedError: the node's sshd forbids it (AllowTcpForwarding no).
        UnreachableError: nobody listens there, or the SSH connection is gone.
    """
    _refuse_if_nobody_listens(host, address, port)
    allow_files(FILES)
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        pump = _Pump(host, (address, port), listener)
        thread = threading.Thread(target=pump.run, name=f"forward-{host.node.name}", daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[:2]
        finally:
            pump.stop()
            thread.join()


def _refuse_if_nobody_listens(host: Host, address: str, port: int) -> None:
    try:
        host.open_tcp(address, port, OPEN_LIMIT_S).close()
    except OSError as error:
        raise UnreachableError(
            f"nobody answers at {address}:{port} on {host.node.name}",
            at=host.node.name,
            found=error.strerror or str(error),
        ) from error


def allow_files(wanted: int) -> int:
    """Have this process open *wanted* files, if the system lets it, and give how many it may now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if allowed == resource.RLIM_INFINITY else allowed


class _Way:
    """One direction: bytes read from *source* that *target* has not taken yet, and the end of the stream."""

    def __init__(self, source: Any, target: Any) -> None:
        self.source = source
        self.target = target
        self.waiting = b""
        self.ended = False  # the source's end was read
        self.done = False  # ... and passed on

    def move(self) -> None:
        """Carry what can be carried now. Raises OSError: one side is broken."""
        while self.flush() and not self.ended:
            try:
                self.waiting = self.source.recv(CHUNK)
            except (BlockingIOError, TimeoutError):
                return
            if not self.waiting:
                self.ended = True
                if not getattr(self.source, "eof_received", True):
                    raise ConnectionResetError  # a channel that ends without an end: the SSH connection was lost
        if self.ended and not self.waiting and not self.done:
            self.done = True
            _end(self.target)

    def flush(self) -> bool:
        """Whether the target took everything."""
        with contextlib.suppress(BlockingIOError, TimeoutError):
            while self.waiting:
                sent = self.target.send(self.waiting)
                if not sent:
                    raise ConnectionResetError  # what a channel says that is closed for writing
                self.waiting = self.waiting[sent:]
        return not self.waiting


class _Pair:
    """A local connection and its channel."""

    def __init__(self, local: socket.socket, remote: Any) -> None:
        self.local = local
        self.remote = remote
        self.up = _Way(local, remote)
        self.down = _Way(remote, local)
        self.watched: dict[Any, int] = {}  # side -> the events that are waited for

    @property
    def done(self) -> bool:
        return self.up.done and self.down.done

    def local_events(self) -> int:
        """What to wait for on the local socket: a side that takes nothing is not read for (back pressure)."""
        read = READ if not self.up.waiting and not self.up.ended else 0
        return read | (WRITE if self.down.waiting else 0)

    def remote_events(self) -> int:
        return READ if not self.down.waiting and not self.down.ended else 0


class _Pump:
    """One thread that carries all connections of one listener."""

    def __init__(self, host: Host, place: tuple[str, int], listener: socket.socket) -> None:
        self._host = host
        self._place = place
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._opened: queue.SimpleQueue[tuple[socket.socket, Any]] = queue.SimpleQueue()
        self._opening: set[socket.socket] = set()
        self._pairs: set[_Pair] = set()
        self._wake, self._woken = socket.socketpair()
        self._openers = ThreadPoolExecutor(AT_ONCE, "forward-open")
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True
        with contextlib.suppress(OSError):  # the pump has ended already
            self._wake.send(b"x")

    def run(self) -> None:
        self._listener.setblocking(False)
        self._woken.setblocking(False)
        self._selector.register(self._listener, READ, self._accept)
        self._selector.register(self._woken, READ, self._take_opened)
        try:
            while not self._stopped:
                self._turn()
        finally:
            self._close()

    def _turn(self) -> None:
        full = [pair for pair in self._pairs if pair.up.waiting]
        for key, _ in self._selector.select(FULL_WAIT_S if full else None):
            if isinstance(key.data, _Pair):
                self._move(key.data)
            else:
                key.data()
        for pair in full:
            self._move(pair)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it is gone already, or there are no files left
            local, _ = self._listener.accept()
            local.setblocking(False)
            local.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._opening.add(local)
            self._openers.submit(self._open, local)

    def _open(self, local: socket.socket) -> None:
        """Open the channel, which blocks: in a thread of its own."""
        remote: Any = None
        with contextlib.suppress(SparkDeployError, OSError):
            opened = self._host.open_tcp(*self._place, OPEN_LIMIT_S)
            remote = getattr(opened, "channel", opened)
            remote.settimeout(0.0)
        self._opened.put((local, remote))
        with contextlib.suppress(OSError):  # the pump has ended meanwhile
            self._wake.send(b"x")

    def _take_opened(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(CHUNK)
        while not self._opened.empty():
            local, remote = self._opened.get()
            self._opening.discard(local)
            if remote is None:
                _reset(local)
            else:
                pair = _Pair(local, remote)
                self._pairs.add(pair)
                self._move(pair)

    def _move(self, pair: _Pair) -> None:
        if pair not in self._pairs:
            return
        try:
            pair.down.move()
            pair.up.move()
            if pair.done:
                self._drop(pair)
                pair.local.close()
                return
            self._watch(pair, pair.local_events(), pair.remote_events())
        except (OSError, EOFError, paramiko.SSHException):
            self._drop(pair)
            _reset(pair.local)

    def _watch(self, pair: _Pair, local: int, remote: int) -> None:
        """Wait for these events of its two sides from now on."""
        for side, events in ((pair.local, local), (pair.remote, remote)):
            known = pair.watched.get(side, 0)
            if not known and events:
                self._selector.register(side, events, pair)
            elif known and not events:
                self._selector.unregister(side)
            elif known != events:
                self._selector.modify(side, events, pair)
            pair.watched[side] = events

    def _drop(self, pair: _Pair) -> None:
        self._pairs.discard(pair)
        self._watch(pair, 0, 0)
        _close(pair.remote)

    def _close(self) -> None:
        """Break what is still open."""
        self._openers.shutdown(wait=False, cancel_futures=True)  # a channel that comes late closes itself
        while not self._opened.empty():
            _close(self._opened.get()[1])
        for pair in tuple(self._pairs):
            self._drop(pair)
            _reset(pair.local)
        for local in self._opening:
            _reset(local)
        self._selector.close()
        self._wake.close()
        self._woken.close()


def _end(side: Any) -> None:
    """Say that no more comes, to a socket or a channel."""
    with contextlib.suppress(OSError, EOFError):
        if isinstance(side, socket.socket):
            side.shutdown(socket.SHUT_WR)
        else:
            side.shutdown_write()


def _close(side: Any) -> None:
    if side is not None:
        with contextlib.suppress(OSError, EOFError):
            side.close()


def _reset(local: socket.socket) -> None:
    with contextlib.suppress(OSError):
        local.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    local.close()
