"""Where a served model is reached, and whether it can be reached from here."""

from __future__ import annotations

import http.client
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from orchestrator.errors import RefusedError, StepFailedError, UnreachableError
from orchestrator.run.complete import CONNECT_LIMIT_S, request

if TYPE_CHECKING:
    from orchestrator.model.inventory import Inventory
    from orchestrator.remote.host import Host

REACH_LIMIT_S = 2


def refuse_if_out_of_reach(inventory: Inventory, head: Host) -> None:
    """
    Ask now, not after a load of minutes, whether the head's SSH server lets us reach its API.

    Raises:
        RefusedError: it forwards no TCP connection; that nobody listens yet is fine.
    """
    try:
        head.open_tcp(inventory.api.local, inventory.api.port, CONNECT_LIMIT_S).close()
    except StepFailedError as error:
        raise RefusedError(error.message, at=error.at, found=error.found, hint=error.hint) from error
    except OSError:
        return


def healthy(inventory: Inventory, head: Host) -> bool:
    """Whether /health answers 200 on the head, asked through its SSH connection."""
    try:
        with head.open_tcp(inventory.api.local, inventory.api.port, CONNECT_LIMIT_S) as opened:
            opened.settimeout(CONNECT_LIMIT_S)
            return request(opened, "GET", "/health").status == http.client.OK
    except (UnreachableError, StepFailedError, OSError, http.client.HTTPException):
        return False


def describe_endpoint(inventory: Inventory, head: Host, served_name: str) -> str:
    """Give the URL, and how to get there where it cannot be reached from this machine."""
    port, local = inventory.api.port, inventory.api.local
    host = api_host(inventory, head)
    if reachable(inventory, head):
        return f"{served_name} at http://{host}:{port}/v1, reachable from here"
    loopback, firewall = "it listens on the head's loopback alone", "not reachable from here: a firewall?"
    why = loopback if inventory.api.loopback else firewall
    tunnel = f"ssh -N -L {port}:{local}:{port} {head.node.ssh}"
    return f"{served_name} at http://{host}:{port}/v1 on {head.node.name} ({why})\n  from here: {tunnel}"


def api_host(inventory: Inventory, head: Host) -> str:
    """The address at which the API is to be asked: the head's own where it listens on all of them."""
    bind = inventory.api.bind
    return head.address if inventory.api.local != bind else bind


def reachable(inventory: Inventory, head: Host) -> bool:
    """Whether somebody listens there, seen from this machine."""
    if inventory.api.loopback:
        return False
    address = (api_host(inventory, head), inventory.api.port)
    with suppress(OSError), socket.create_connection(address, REACH_LIMIT_S):
        return True
    return False
