"""The seam between what we want on a node and how it gets there: a Host. Tests bring their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator
    from typing import Any

    from orchestrator.model.inventory import Node
    from orchestrator.shell import NodePath


@dataclass(frozen=True)
class Outcome:
    """What a script left behind; exit code 124 means that its time ran out."""

    exit_code: int
    stdout: str
    stderr: str


class Docker(Protocol):
    """A read-only view of a node's Docker engine over the node's own SSH connection."""

    def container(self, name: str) -> dict[str, Any] | None:
        """`docker inspect NAME`, or None where there is no such container."""

    def logs(self, name: str, *, follow: bool = False, tail: int | None = None) -> Iterator[bytes]:
        """Chunks of a container's log, standard output and error as they came."""


class Host(Protocol):
    """One node, one SSH connection. Methods raise UnreachableError when the connection is gone."""

    @property
    def node(self) -> Node:
        """The inventory's node behind this host."""

    @property
    def address(self) -> str:
        """Where the node's SSH server is: the last hop's name or address."""

    def run(self, script: str, *, timeout_s: float, on_line: Callable[[str], None] | None = None) -> Outcome:
        """Run bash *script* under timeout(1) on the node; cancel() and the time limit leave no process behind."""

    def put(self, path: NodePath, content: bytes, mode: int = 0o644) -> None:
        """Write a file: parents made (0700), written beside and renamed into place."""

    def read(self, path: NodePath) -> bytes | None:
        """Give a file's content, None where there is none."""

    def open_tcp(self, address: str, port: int, timeout_s: float) -> socket.socket:
        """A TCP connection from the node to *address*:*port*, through the SSH connection."""

    def docker(self) -> Docker:
        """The node's Docker engine."""

    def alive(self) -> bool:
        """Whether the connection answers within 5 s."""

    def reconnect(self) -> None:
        """Open the connection anew, as strict as the first time."""

    def cancel(self) -> None:
        """Kill what run() is running now, from another thread; run() then returns with exit code 143."""

    def close(self) -> None:
        """Close the connection."""
