"""`logs`: the containers' logs of one node or of all, line by line."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

from orchestrator.errors import SparkDeployError, StepFailedError, UsageError, one_or_many

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from orchestrator.model.inventory import Inventory, Node
    from orchestrator.remote.host import Host

    Lines = queue.SimpleQueue[str | Exception | None]  # None: a node has said all


def chosen(inventory: Inventory, name: str | None) -> tuple[Node, ...]:
    """
    Give the node called *name*, or all.

    Raises:
        UsageError: there is no such node.
    """
    if name is None:
        return inventory.nodes
    nodes = tuple(node for node in inventory.nodes if node.name == name)
    if not nodes:
        raise UsageError(
            f"there is no node {name}",
            wanted=", ".join(node.name for node in inventory.nodes),
            at=inventory.source,
        )
    return nodes


def show_logs(
    inventory: Inventory,
    hosts: Mapping[str, Host],
    echo: Callable[[str], object],
    *,
    follow: bool,
    tail: int | None,
) -> None:
    """
    Give every line to *echo*, with the node's name before it where there are several.

    Raises:
        StepFailedError: a node has no container of this deployment; the others were shown, unless followed.
    """
    lines: Lines = queue.SimpleQueue()
    for host in hosts.values():
        # Daemons, as nothing but the end of its connection ends a reader that waits for the next line.
        arguments = (inventory, host, lines, follow, tail)
        threading.Thread(target=_read, args=arguments, daemon=True).start()
    errors: list[SparkDeployError] = []
    reading = len(hosts)
    while reading and not (follow and errors):
        line = lines.get()
        if isinstance(line, str):
            echo(line)
            continue
        reading -= 1
        if isinstance(line, SparkDeployError):
            errors.append(line)
        elif line:
            raise line
    if errors:
        raise one_or_many(errors)


def _read(inventory: Inventory, host: Host, lines: Lines, follow: bool, tail: int | None) -> None:
    try:
        for line in _log(inventory, host, follow=follow, tail=tail):
            lines.put(f"{host.node.name}  {line}" if len(inventory.nodes) > 1 else line)
        lines.put(None)
    except Exception as error:  # noqa: BLE001  show_logs raises it where somebody can see it
        lines.put(error)


def _log(inventory: Inventory, host: Host, *, follow: bool, tail: int | None) -> Iterator[str]:
    name = host.node.name
    if host.docker().container(inventory.container) is None:
        raise StepFailedError(f"{name} has no container of {inventory.name}", hint="spark-deploy status")
    yield from _lines(host.docker().logs(inventory.container, follow=follow, tail=tail))


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line.decode("utf-8", "replace").rstrip("\r")
    if rest:
        yield rest.decode("utf-8", "replace")
