"""From settings to an open, verified, logged-in Fabric connection, hop by hop."""

from __future__ import annotations

import contextlib
import logging
import socket
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import fabric
import paramiko
from paramiko.auth_strategy import AuthFailure

from orchestrator.errors import UnreachableError
from orchestrator.remote import login
from orchestrator.remote.strict import StrictPolicy, transport_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import IO

    from orchestrator.remote.ssh_config import SshSettings

KEEPALIVE_S = 10  # below the idle limits of NAT boxes; also what finds a dead link while we only wait
# Data without an answer ends the connection after this: a link lost for 10 s survives, one lost for good not.
USER_TIMEOUT_MS = 40_000

# Without a handler Python prints paramiko's ERROR records, tracebacks and all, to our stderr.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


@dataclass
class Line:
    """An open way to a node: the connection of every hop, and the one real socket under them all."""

    connections: list[fabric.Connection] = field(default_factory=list)
    base: socket.socket | None = None
    proxy: subprocess.Popen[bytes] | None = None
    proxy_errors: IO[bytes] | None = None

    @property
    def transport(self) -> paramiko.Transport:
        transport = self.connections[-1].transport
        assert isinstance(transport, paramiko.Transport)  # noqa: S101  dial() gives open lines only
        return transport

    def drop(self) -> None:
        """Cut the line under all hops at once: whoever waits on it, in any thread, is freed. Never blocks."""
        if self.base is not None:
            with contextlib.suppress(OSError):
                self.base.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close every hop, the last first, in at most 2 s."""
        with limited(self, 2):
            for connection in reversed(self.connections):
                connection.client.close()
        self.drop()
        if self.base is not None:
            self.base.close()
        if self.proxy is not None:
            self.proxy.kill()
            self.proxy.wait()
        if self.proxy_errors is not None:
            self.proxy_errors.close()


@contextlib.contextmanager
def limited(line: Line, seconds: float) -> Iterator[threading.Event]:
    """
    Cut *line* when the block takes longer than *seconds*; the event says that it did.

    paramiko has waits without any limit (a send into a full socket, a key exchange); a cut socket
    ends them all.
    """
    expired = threading.Event()

    def expire() -> None:
        expired.set()
        line.drop()

    timer = threading.Timer(seconds, expire)
    timer.daemon = True
    timer.start()
    try:
        yield expired
    finally:
        timer.cancel()


def dial(route: Sequence[SshSettings], node: str) -> Line:
    """
    Connect, verify and log in on every hop in order.

    Raises:
        UnreachableError: no route, no answer in time, a host key that is not known, no login.
    """
    line = Line()
    try:
        for settings in route:
            add_hop(line, settings, where(route, settings, node))
    except BaseException:
        line.close()
        raise
    line.transport.set_keepalive(KEEPALIVE_S)
    return line


def where(route: Sequence[SshSettings], settings: SshSettings, node: str) -> str:
    """`spark-1 (10.0.0.1:22)` or `spark-1: jump host gate (…)`: what an error's *at* says."""
    hop = "" if settings is route[-1] else f": jump host {settings.written}"
    return f"{node}{hop} ({settings.address})"


def add_hop(line: Line, settings: SshSettings, place: str) -> None:
    """Make *line* one hop longer. Raises UnreachableError with *place* as its *at*."""
    with _in_time(line, settings, place) as limit_s:
        sock = open_way(line, settings)
        with limited(line, limit_s()):
            connection = connection_for(settings, place, sock)
            line.connections.append(connection)
            _log_in(connection, settings)


def offered_key(line: Line, settings: SshSettings, place: str) -> paramiko.PKey:
    """Ask the next hop for its host key, without logging in. Raises UnreachableError."""
    ours = Line()
    with contextlib.ExitStack() as stack:
        stack.callback(ours.close)
        way = line if line.connections else ours
        limit_s = stack.enter_context(_in_time(way, settings, place))
        sock = open_way(way, settings)
        stack.enter_context(limited(way, limit_s()))
        transport = transport_for(settings, sock)
        stack.callback(transport.close)
        transport.start_client(timeout=limit_s())
        return transport.get_remote_server_key()


@contextlib.contextmanager
def _in_time(line: Line, settings: SshSettings, place: str) -> Iterator[Callable[[], float]]:
    """Give the seconds that are left of the hop's connect timeout; say what went wrong, or that it ran out."""
    limit_s = settings.connect_timeout_s
    deadline = time.monotonic() + limit_s
    try:
        yield lambda: max(0.1, deadline - time.monotonic())
    except UnreachableError as error:
        error.at = error.at or place
        raise
    except (OSError, EOFError, paramiko.SSHException) as error:
        late = isinstance(error, TimeoutError) or time.monotonic() >= deadline
        found = f"no answer within {limit_s:g} s" if late else reason(error)
        raise UnreachableError(
            f"{settings.written} cannot be reached",
            at=place,
            found="; ".join(filter(None, [found, _proxy_said(line)])),
            wanted=f"an SSH server at {settings.address}",
            hint="is it on, and is the address right?",
        ) from error


def reason(error: BaseException) -> str:
    """The words of an exception of paramiko or the system, never empty."""
    if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError):
        error = next(iter(error.errors.values()))
    text = getattr(error, "strerror", None) or str(error)
    return text or ("the connection was closed" if isinstance(error, EOFError) else type(error).__name__)


def open_way(line: Line, settings: SshSettings) -> Any:
    """A socket to the hop: through the hop before, a ProxyCommand, or TCP."""
    if line.connections:
        with limited(line, settings.connect_timeout_s):
            place = (settings.hostname, settings.port)
            return line.transport.open_channel(
                "direct-tcpip", place, ("", 0), timeout=settings.connect_timeout_s
            )
    line.base = _run_proxy(line, settings.proxy_command) if settings.proxy_command else _tcp(settings)
    return line.base


def _tcp(settings: SshSettings) -> socket.socket:
    """The first address that answers. Each gets its share of the connect timeout: IPv6 may lead nowhere."""
    deadline = time.monotonic() + settings.connect_timeout_s
    places = socket.getaddrinfo(settings.hostname, settings.port, type=socket.SOCK_STREAM)
    failure: OSError = OSError("no address")
    for left, (family, kind, protocol, _, place) in zip(range(len(places), 0, -1), places, strict=True):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(max(0.1, (deadline - time.monotonic()) / left))
            sock.connect(place)
        except OSError as error:
            sock.close()
            failure = error
            continue
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
        return sock
    raise failure


def _run_proxy(line: Line, command: str) -> socket.socket:
    """
    A ProxyCommand behind a real socket: paramiko's own never sees that the program ended.

    In a session of its own: Ctrl-C must not end the line that the roll-back needs.
    """
    import tempfile

    ours, theirs = socket.socketpair()
    line.proxy_errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the line
    with theirs:
        line.proxy = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command}"],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=line.proxy_errors,
            start_new_session=True,
        )
    return ours


def _proxy_said(line: Line) -> str:
    if line.proxy_errors is None:
        return ""
    line.proxy_errors.seek(0)
    said = " ".join(line.proxy_errors.read(2000).decode(errors="replace").split())
    return f"ProxyCommand said: {said}" if said else ""


def connection_for(settings: SshSettings, place: str, sock: Any) -> fabric.Connection:
    """
    A Fabric connection that reads no configuration of its own and accepts known host keys only.

    Fabric's default, AutoAddPolicy, would accept any key and write it down.
    """
    connection = fabric.Connection(
        host=settings.hostname,
        user=settings.user,
        port=settings.port,
        config=fabric.Config(ssh_config=paramiko.SSHConfig(), lazy=True),
        gateway=False,
        forward_agent=False,
        connect_timeout=max(1, round(settings.connect_timeout_s)),
        connect_kwargs={
            "sock": sock,
            "transport_factory": lambda sock, **options: transport_for(settings, sock, **options),
            "banner_timeout": settings.connect_timeout_s,
            "auth_timeout": settings.connect_timeout_s,
            "channel_timeout": settings.connect_timeout_s,
        },
    )
    connection.client.set_missing_host_key_policy(StrictPolicy(settings, place))
    return connection


def _log_in(connection: fabric.Connection, settings: SshSettings) -> None:
    with login.agent_keys(settings.agent) as keys:
        strategy = login.StrictAuth(settings, keys)
        connection.connect_kwargs["auth_strategy"] = strategy
        try:
            connection.open()
        except AuthFailure as failure:
            raise login.refused(settings, strategy, failure) from failure
    if not connection.transport.is_authenticated():
        raise login.wants_more(settings)
