"""What is allowed, but worth a warning. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.inventory import Inventory
    from orchestrator.model.recipe import Recipe

# Above it pairs were seen to run out of memory, which freezes the whole node (docs/inventory.md#memory).
UTILIZATION_LIMIT = 0.87
RAY_PORTS = range(10001, 20000)  # Ray's client server and its workers (`ray start --help`, 2.60)
_PINNED = re.compile(r"(?:.*@)?sha256:[0-9a-f]{64}\Z")


def warnings(inventory: Inventory, recipe: Recipe) -> tuple[str, ...]:
    """Give one sentence each, what it means and what to do."""
    return (*recipe_warnings(recipe), *inventory_warnings(inventory, recipe))


def recipe_warnings(recipe: Recipe) -> Iterator[str]:
    """Give one sentence each, what it means and what to do."""
    if not _PINNED.match(recipe.image):
        yield f"image {recipe.image} is a tag, and tags move: pin it as name@sha256:…"
    utilization = _number(recipe.vllm.get("gpu-memory-utilization"))
    if utilization > UTILIZATION_LIMIT:
        yield (
            f"gpu-memory-utilization {utilization:g} is above {UTILIZATION_LIMIT}: "
            "the system shares this memory, and freezes when it runs out"
        )
    if recipe.vllm.get("trust-remote-code") is True:
        yield "trust-remote-code runs the checkpoint's own code on every node"
    if recipe.vllm.get("disable-log-stats") is True:
        yield "disable-log-stats takes away the counters by which a hang is seen"
    if recipe.env.get("VLLM_SERVER_DEV_MODE", "0") not in ("", "0"):
        yield "VLLM_SERVER_DEV_MODE opens paths that pause the engine or change its weights"


def inventory_warnings(inventory: Inventory, recipe: Recipe) -> Iterator[str]:
    """Give one sentence each, about what the API and the log show to whom."""
    if not inventory.api.loopback and "VLLM_API_KEY" not in recipe.secrets:
        yield f"the API on {inventory.api.bind} answers everybody: no VLLM_API_KEY in the recipe's secrets"
    elif not inventory.api.loopback:
        yield "VLLM_API_KEY guards /v1 only: /metrics, /invocations and others stay open on the network"
    if inventory.api.port in RAY_PORTS:
        yield f"api.port {inventory.api.port} is one that Ray may take for a worker ({RAY_PORTS[0]} to {RAY_PORTS[-1]})"
    debug = recipe.env.get("NCCL_DEBUG", "INFO").upper()
    if inventory.transport == "rdma" and debug not in ("INFO", "TRACE"):
        yield f"NCCL_DEBUG={debug} hides from the log whether NCCL uses RDMA"


def _number(value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        return 0.0
