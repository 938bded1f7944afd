"""Connections to many nodes at the same time, for the length of a command."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from orchestrator.errors import SparkDeployError, UnreachableError, one_or_many
from orchestrator.remote import ssh_config
from orchestrator.remote.connection import USUAL, FabricHost, Limits
from orchestrator.remote.ssh_config import SshEnvironment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from typing_extensions import Self

    from orchestrator.model.inventory import Node

ABANDON_S = 3.0  # beyond a route's own limits, which a resolver that never answers does not know


class Hosts(dict[str, FabricHost]):
    """Open connections by node name, in rank order; closes them all at the end of a `with`."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        _each([host.close for host in self.values()])


@contextmanager
def connected(nodes: Sequence[Node]) -> Iterator[tuple[Hosts, SparkDeployError | None]]:
    """
    Give the hosts that answer, and one error that names those that do not (None: all do).

    Raises:
        FileError: the SSH configuration has a mistake.
    """
    hosts, errors = try_hosts(nodes)
    with hosts:
        yield hosts, one_or_many(errors) if errors else None


def try_hosts(
    nodes: Sequence[Node],
    environment: SshEnvironment | None = None,
    limits: Limits = USUAL,
) -> tuple[Hosts, tuple[SparkDeployError, ...]]:
    """
    Connect to those that answer, and say why the others do not; each error's *at* begins with the node.

    Raises:
        FileError: ssh_config has a mistake.
    """
    environment = environment or SshEnvironment.from_process()
    attempts = [_Attempt(FabricHost(node, ssh_config.route(node.ssh, environment), limits)) for node in nodes]
    try:
        _each([attempt.dial for attempt in attempts], wait=False)
        errors = [attempt.outcome() for attempt in attempts]
    except BaseException:
        for attempt in attempts:
            attempt.abandon()
        raise
    hosts = Hosts(
        {a.host.node.name: a.host for a, error in zip(attempts, errors, strict=True) if error is None}
    )
    return hosts, tuple(error for error in errors if error)


class _Attempt:
    """One node's connect(), in a thread that may be left behind: nothing interrupts the system's resolver."""

    def __init__(self, host: FabricHost) -> None:
        self.host = host
        self._deadline = time.monotonic() + ABANDON_S + host.connect_limit_s
        self._error: BaseException | None = None
        self._done = threading.Event()
        self._abandoned = threading.Event()

    def dial(self) -> None:
        try:
            self.host.connect()
        except BaseException as error:  # noqa: BLE001  outcome() raises it in the caller's thread
            self._error = error
        self._done.set()
        if self._abandoned.is_set():
            self.host.close()

    def abandon(self) -> None:
        self._abandoned.set()
        if self._done.is_set():
            self.host.close()

    def outcome(self) -> SparkDeployError | None:
        """Wait; None: connected. Raises whatever is no SparkDeployError: a bug."""
        if not self._done.wait(max(0, self._deadline - time.monotonic())):
            self.abandon()
            name = self.host.node.name
            return UnreachableError(
                f"{name} cannot be reached", at=name, found="its name does not resolve in time"
            )
        if self._error is None or isinstance(self._error, SparkDeployError):
            return self._error
        raise self._error


def _each(actions: Sequence[Callable[[], None]], *, wait: bool = True) -> None:
    """All at the same time, each in a thread that does not keep the program alive."""
    threads = [threading.Thread(target=action, daemon=True) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads if wait else ():
        thread.join()
