"""Connections to all nodes for the length of a command."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from orchestrator.errors import one_or_many
from orchestrator.remote.hosts import try_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator.errors import SparkDeployError
    from orchestrator.model.inventory import Node
    from orchestrator.remote.hosts import Hosts


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
