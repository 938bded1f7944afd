"""A stand-in for the `ray` module: what a join probe needs of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lab_stub

from . import exceptions
from ._raylet import GcsClient

__all__ = ["__version__", "exceptions", "init", "is_initialized", "nodes", "shutdown"]

__version__ = lab_stub.RAY_VERSION

_client: list[GcsClient] = []


def init(address: str | None = None, **_: Any) -> dict[str, str]:
    address = address or os.environ.get("RAY_ADDRESS", "auto")
    if address == "auto":
        address = Path("/tmp/ray/ray_current_cluster").read_text().strip()
    _client[:] = [GcsClient(address=address)]
    return {"address": address}


def is_initialized() -> bool:
    return bool(_client)


def nodes() -> list[dict[str, Any]]:
    return [
        {
            "NodeID": node_id.hex(),
            "Alive": info.state == 0,
            "NodeManagerAddress": info.node_manager_address,
            "Resources": dict(info.resources_total),
        }
        for node_id, info in _client[0].get_all_node_info().items()
    ]


def shutdown() -> None:
    _client.clear()
