"""What one run carries with it: the nodes, the secrets, who listens, and whether it was interrupted."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from signal import SIGHUP, SIGINT, SIGTERM, getsignal, signal
from typing import TYPE_CHECKING, Any

from orchestrator.errors import UnreachableError
from orchestrator.model.event import Event
from orchestrator.shell import sh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from orchestrator.model.event import Kind, Sink
    from orchestrator.model.inventory import Inventory, Node
    from orchestrator.model.recipe import Recipe
    from orchestrator.remote.host import Host

# Enough for a cable that is put back or an sshd that restarts; after it the pair is left to its supervisors.
RECONNECT_LIMIT_S = 60


@dataclass
class Session:
    """One `up` or `down`. *variables* are what scripts may use beside their text: SPARK_DEPLOY_RUN and _HOLDER."""

    inventory: Inventory
    recipe: Recipe
    hosts: Mapping[str, Host]
    sink: Sink
    variables: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    secrets_found: Mapping[str, bytes | None] = field(default_factory=dict)  # by node, before this run
    now: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    interrupted: threading.Event = field(default_factory=threading.Event)
    reconnect_every_s: float = 2
    lost: set[str] = field(default_factory=set)  # nodes that did not come back within the limit
    open_sockets: set[socket.socket] = field(default_factory=set)

    @property
    def head(self) -> Host:
        return self.hosts[self.inventory.head.name]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Those that answer."""
        return tuple(node for node in self.inventory.nodes if node.name in self.hosts)

    def tell(self, kind: Kind, text: str = "", *, step: str = "", node: str = "", **data: Any) -> None:
        self.sink(Event(self.now(), kind, text, step, node, data))

    def with_variables(self, script: str) -> str:
        exports = "".join(f"export {name}={sh(value)}\n" for name, value in sorted(self.variables.items()))
        return exports + script

    def reconnect(self, host: Host) -> None:
        """
        Try to have *host* back, for a minute; once only where a minute was spent already.

        Raises:
            UnreachableError: it did not come back, or the run was interrupted meanwhile.
        """
        name, began = host.node.name, self.clock()
        limit_s = 0 if name in self.lost else RECONNECT_LIMIT_S
        tries = f"trying for {limit_s} s" if limit_s else "trying once"
        self.tell("warning", f"{name} is lost: {tries}", node=name)
        while True:
            try:
                host.reconnect()
            except UnreachableError:
                if self.clock() - began >= limit_s or self.interrupted.wait(self.reconnect_every_s):
                    self.lost.add(name)
                    raise
            else:
                self.lost.discard(name)
                self.tell("note", f"{name} is back after {self.clock() - began:.0f} s", node=name)
                return

    def forget_interrupt(self) -> None:
        """A new Event: in clear() a signal's handler would wait for the lock that its own thread holds."""
        self.interrupted = threading.Event()

    def stop_now(self) -> None:
        """End what runs on the nodes and what we wait for."""
        for opened in list(self.open_sockets):
            with suppress(OSError):
                opened.shutdown(socket.SHUT_RDWR)  # close() alone does not wake a thread that reads
        for host in self.hosts.values():
            with suppress(UnreachableError):
                host.cancel()


@contextmanager
def signals_noted(session: Session) -> Iterator[None]:
    """Ctrl-C and its like are noted, not thrown: a plan is left between two actions, never within one."""

    def note(_number: int, _frame: object) -> None:
        session.interrupted.set()

    before = {number: getsignal(number) for number in (SIGINT, SIGTERM, SIGHUP)}
    for number in before:
        signal(number, note)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal(number, handler)
