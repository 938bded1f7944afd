"""The real Host: one node, one Fabric connection, everything bounded in time."""

from __future__ import annotations

import contextlib
import errno
import posixpath
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import paramiko

from orchestrator.errors import SparkDeployError, StepFailedError, UnreachableError
from orchestrator.remote import files
from orchestrator.remote import script as scripts
from orchestrator.remote.dial import Line, dial, limited, reason
from orchestrator.remote.script import LinkLostError, Running
from orchestrator.remote.tunnel import ChannelSocket
from orchestrator.shell import NodePath, sh

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator, Sequence

    from orchestrator.model.inventory import Node
    from orchestrator.remote.host import Docker, Outcome
    from orchestrator.remote.ssh_config import SshSettings

SLOWEST_BYTES_PER_S = 100_000  # below this we call no link a connection


@dataclass(frozen=True)
class Limits:
    """How long a silent node may keep us waiting; tests are less patient."""

    alive_s: float = 5.0
    file_s: float = 20.0  # one file over SFTP, plus its bytes at the slowest rate
    probe_s: float = 15.0  # silence of a script after which the node is asked for a sign of life
    answer_s: float = 25.0  # … and its limit: a link lost for 10 s survives, one lost for good does not
    docker_s: float = 30.0  # one answer: `docker inspect` under memory pressure was seen to take seconds
    script_grace_s: float = 15.0  # beyond a script's own time limit: TERM, KILL, and the way back


USUAL = Limits()


class FabricHost:
    """A node behind an SSH connection; try_hosts() makes it."""

    def __init__(self, node: Node, route: Sequence[SshSettings], limits: Limits = USUAL) -> None:
        """Nothing is dialled before connect(); *route* is ssh_config.route(node.ssh, …)."""
        self._node = node
        self._route = route
        self._limits = limits
        self._line: Line | None = None
        self._sftp: paramiko.SFTPClient | None = None
        self._sftp_lock = threading.Lock()
        self._running: set[Running] = set()

    @property
    def node(self) -> Node:
        return self._node

    @property
    def address(self) -> str:
        return self._route[-1].hostname

    @property
    def connect_limit_s(self) -> float:
        """How long connect() may take, jump hosts and all."""
        return sum(hop.connect_timeout_s for hop in self._route)

    def connect(self) -> None:
        """
        Dial every hop, verify every host key, log in.

        Raises:
            UnreachableError: one of these did not work.
        """
        self._line = dial(self._route, self._node.name)

    def reconnect(self) -> None:
        """Do so again, as strictly, after the connection was lost. Raises as connect() does."""
        self.close()
        self.connect()

    def run(self, script: str, *, timeout_s: float, on_line: Callable[[str], None] | None = None) -> Outcome:
        """
        Run bash; exit code 124: out of time, 143: cancelled. Both streams' lines go to *on_line*.

        Raises:
            UnreachableError: the connection ended or stayed silent before the script did.
        """
        running = Running()
        self._running.add(running)
        grace_s = self._limits.script_grace_s
        try:
            with (
                self._link("running a script", timeout_s + 2 * grace_s) as transport,
                transport.open_session(timeout=grace_s) as channel,
            ):
                return scripts.run(
                    channel,
                    script,
                    running,
                    timeout_s=timeout_s,
                    grace_s=grace_s,
                    on_line=on_line,
                    probe=scripts.Probe(self._limits.probe_s, self._probe),
                )
        except LinkLostError as error:
            raise self._unreachable(str(error)) from error
        finally:
            self._running.discard(running)

    def cancel(self) -> None:
        """Kill what run() runs now; nothing happens when it runs nothing."""
        for running in tuple(self._running):
            with contextlib.suppress(SparkDeployError), self._link("cancelling", self._limits.alive_s):
                running.cancel()

    def _probe(self) -> None:
        """Have the node answer, or cut the line: a dead link behind a jump host shows in no other way."""
        line = self._open_line()
        with limited(line, self._limits.answer_s):
            line.transport.global_request("keepalive@openssh.com", wait=True)

    def put(self, path: NodePath, content: bytes, mode: int = 0o644) -> None:
        """
        Write a file: parents made 0700, written beside and renamed.

        Raises:
            StepFailedError: the node refuses: permission, disk full, a folder in the way.
            UnreachableError: the connection is gone.
        """
        limit_s = self._limits.file_s + len(content) / SLOWEST_BYTES_PER_S
        try:
            with self._files(f"writing {path}", limit_s) as sftp:
                files.write(sftp, path.sftp, content, mode)
        except OSError as error:
            raise self._refused_write(path, error) from error

    def read(self, path: NodePath) -> bytes | None:
        """Give the content, None where there is none. Raises StepFailedError: not readable."""
        try:
            with self._files(f"reading {path}", self._limits.file_s) as sftp:
                return files.read(sftp, path.sftp)
        except OSError as error:
            whose = (
                f"on the node: ls -ld {posixpath.dirname(path)}   # the user that we log in as must own it"
            )
            raise StepFailedError(
                f"{path} cannot be read",
                at=self._node.name,
                found=reason(error),
                hint=whose if isinstance(error, PermissionError) else None,
            ) from error

    def open_tcp(self, address: str, port: int, timeout_s: float) -> socket.socket:
        """
        Open a TCP connection from the node; good for http.client.

        Raises:
            ConnectionRefusedError: nobody listens there.
            TimeoutError: no answer in time.
            StepFailedError: the node's sshd forbids it (AllowTcpForwarding no).
            UnreachableError: the SSH connection is gone.
        """
        with self._link(f"dialling {address}:{port}", timeout_s + self._limits.alive_s) as transport:
            channel = self._open_channel(transport, address, port, timeout_s)
        if channel is None:
            raise TimeoutError(f"no answer from {address}:{port} within {timeout_s:g} s")
        channel.settimeout(timeout_s)
        return cast("socket.socket", ChannelSocket(channel))

    def docker(self) -> Docker:
        """Give a read-only view of the node's Docker engine. Its methods raise RefusedError with a hint."""
        from orchestrator.remote.docker import SshDocker

        return SshDocker(self, self._limits.docker_s)

    def alive(self) -> bool:
        """Whether the connection answers within 5 s."""
        try:
            with self._link("a sign of life", self._limits.alive_s + 1) as transport:
                transport.open_session(timeout=self._limits.alive_s).close()
        except UnreachableError:
            return False
        except StepFailedError:
            return True  # a refusal is an answer: MaxSessions
        return True

    def close(self) -> None:
        """Close the connection; whatever other threads do on it ends with UnreachableError."""
        line, self._line, self._sftp = self._line, None, None
        if line is not None:
            line.close()

    def open_session(self, timeout_s: float) -> paramiko.Channel:
        """Give a channel for one command. Raises UnreachableError."""
        with self._link("opening a channel", timeout_s + 1) as transport:
            return transport.open_session(timeout=timeout_s)

    def _open_line(self) -> Line:
        if self._line is None:
            raise self._unreachable("not connected")
        return self._line

    @contextlib.contextmanager
    def _link(self, doing: str, limit_s: float) -> Iterator[paramiko.Transport]:
        """
        The live transport, for at most *limit_s*; what paramiko says of a dead one becomes UnreachableError.

        A system's error on a live connection passes, as it means something: there is no such file.
        """
        line = self._open_line()
        with limited(line, limit_s) as expired:
            try:
                yield line.transport
            except (paramiko.SSHException, EOFError, OSError) as error:
                if expired.is_set():
                    raise self._unreachable(f"{doing}: no answer within {limit_s:g} s") from error
                lost = isinstance(error, (EOFError, TimeoutError)) or "Timeout" in str(error)
                if lost or not line.transport.is_active():
                    raise self._unreachable(f"{doing}: {reason(error)}") from error
                if isinstance(error, paramiko.SSHException):
                    raise StepFailedError(
                        f"the node's SSH server refuses: {doing}",
                        at=self._node.name,
                        found=reason(error),
                        hint="MaxSessions in its /etc/ssh/sshd_config: at least 4",
                    ) from error
                raise

    @contextlib.contextmanager
    def _files(self, doing: str, limit_s: float) -> Iterator[paramiko.SFTPClient]:
        with self._sftp_lock, self._link(doing, limit_s + self._limits.alive_s) as transport:
            try:
                self._sftp = self._sftp or self._open_sftp(transport)
                yield self._sftp
            except (TimeoutError, paramiko.SSHException) as error:
                self._sftp = None  # an answer that comes late would be taken for another's
                raise self._unreachable(f"{doing}: {reason(error)}") from error

    def _open_sftp(self, transport: paramiko.Transport) -> paramiko.SFTPClient:
        channel = transport.open_session(timeout=self._limits.file_s)
        channel.settimeout(self._limits.file_s)
        try:
            channel.invoke_subsystem("sftp")
            return paramiko.SFTPClient(channel)
        except (EOFError, paramiko.SSHException, paramiko.SFTPError) as error:
            if not transport.is_active():
                raise
            raise StepFailedError(
                "the node's SSH server has no SFTP",
                at=self._node.name,
                found=reason(error),
                hint="`Subsystem sftp internal-sftp` in its /etc/ssh/sshd_config; and no ~/.bashrc may print",
            ) from error

    def _open_channel(
        self, transport: paramiko.Transport, address: str, port: int, timeout_s: float
    ) -> paramiko.Channel | None:
        """Give None: no answer in time."""
        try:
            return transport.open_channel(
                "direct-tcpip", (address, port), ("127.0.0.1", 0), timeout=timeout_s
            )
        except paramiko.ChannelException as error:
            if error.code == 1:  # RFC 4254: administratively prohibited
                raise StepFailedError(
                    f"the node's SSH server does not let us reach {address}:{port} through it",
                    at=self._node.name,
                    hint="`AllowTcpForwarding local` in its /etc/ssh/sshd_config",
                ) from error
            raise ConnectionRefusedError(
                errno.ECONNREFUSED, f"{address}:{port} on {self._node.name}"
            ) from error
        except paramiko.SSHException:
            if not transport.is_active():
                raise
            return None

    def _refused_write(self, path: NodePath, error: OSError) -> StepFailedError:
        folder = posixpath.dirname(path) or "~"
        found = reason(error)
        if isinstance(error, PermissionError):
            hint = f"the user that we log in as must be able to write {folder}"
        else:  # SFTP has one word, `Failure`, for a full disk and much else
            found = f"{found}; {self._space(folder)}" if error.errno is None else found
            hint = "a file may be in the way of a folder" if error.errno else "is the disk full?"
        return StepFailedError(f"{path} cannot be written", at=self._node.name, found=found, hint=hint)

    def _space(self, folder: str) -> str:
        """What df says of the nearest folder that exists, in words."""
        quoted = sh(NodePath(folder))
        search = (
            f'd={quoted}; until [ -e "$d" ]; do d=$(dirname "$d"); done; df --output=pcent,ipcent,target "$d"'
        )
        try:
            line = self.run(search, timeout_s=10).stdout.splitlines()[-1].split()
            return f"{line[2]} is {line[0]} full, its inodes {line[1]}"
        except (SparkDeployError, IndexError):
            return "free space unknown"

    def _unreachable(self, found: str) -> UnreachableError:
        return UnreachableError(
            f"the connection to {self._node.name} is lost", at=self._node.name, found=found
        )
