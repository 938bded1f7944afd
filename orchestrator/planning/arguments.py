"""The argument lists of `vllm serve` and `ray start`, one argument a line. Pure."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.model.inventory import Inventory, Node
    from orchestrator.model.recipe import Recipe

# How options take several values where that is not nargs="+" (vLLM 0.32, entrypoints/launchers/cli_args.py).
JSON_LISTS = frozenset({"allowed-origins", "allowed-methods", "allowed-headers"})  # one JSON list
JSON_ITEMS = frozenset({"lora-modules"})  # nargs="+" of JSON objects
REPEATED = frozenset({"middleware"})  # the option again for every value
BARE_FLAGS = frozenset({"disable-log-stats", "aggregate-engine-logging"})  # have no --no- form

# Ray's click options that are no flags but take a BOOLEAN (ray 2.60, `ray start --help`).
RAY_BOOLEANS = frozenset({"include-log-monitor", "log-color"})

# 1 GiB is enough for vLLM's control messages; Ray's default takes 30 % of the memory that the model needs
# (eugr/spark-vllm-docker, launch-cluster.sh).
OBJECT_STORE_BYTES = 1_073_741_824


def parallel_sizes(recipe: Recipe, nodes: int) -> tuple[int, int, int]:
    """
    Tensor, pipeline and prefill-context parallel size; the tensor size fills the *nodes* unless given.

    The product may not be the number of nodes: load.pair refuses that.
    """
    pipeline = recipe.vllm.get("pipeline-parallel-size", 1)
    context = recipe.vllm.get("prefill-context-parallel-size", 1)
    rest = max(1, nodes // (pipeline * context))
    return recipe.vllm.get("tensor-parallel-size", rest), pipeline, context


def serve_arguments(recipe: Recipe, inventory: Inventory) -> tuple[str, ...]:
    """
    Everything after `vllm serve`: the model, what the tool owns, then the recipe's options in their order.

    Raises:
        ValueError: a value has no form on a command line.
    """
    tensor, _pipeline, _context = parallel_sizes(recipe, len(inventory.nodes))
    owned = {
        "host": inventory.api.bind,
        "port": inventory.api.port,
        # Said explicitly: from vLLM 0.11.1 on Ray is not the default over several nodes.
        "distributed-executor-backend": recipe.executor,
        "tensor-parallel-size": tensor,
    }
    options = {**owned, **{name: value for name, value in recipe.vllm.items() if name not in owned}}
    return (recipe.model, *(word for name, value in options.items() for word in vllm_words(name, value)))


def ray_arguments(recipe: Recipe, inventory: Inventory, node: Node) -> tuple[str, ...]:
    """
    Everything after `ray start` on *node*. GPUs are found by Ray itself and counted when the node has joined.

    Raises:
        ValueError: a value has no form on a command line.
    """
    ip, port = inventory.head.fabric.ip, inventory.ports.ray
    place = (
        ("--head", f"--port={port}", "--include-dashboard=false")
        if node.rank == 0
        else (f"--address={ip}:{port}",)
    )
    options = {"object-store-memory": OBJECT_STORE_BYTES, **recipe.ray}
    words = [word for name, value in options.items() for word in ray_words(name, value)]
    return (*place, f"--node-ip-address={node.fabric.ip}", "--disable-usage-stats", *words, "--block")


def vllm_words(name: str, value: Any) -> tuple[str, ...]:
    """
    One option of `vllm serve`: a flag, `--name=value`, `--name` and its values, or `--name=JSON`.

    Raises:
        ValueError: says what *value* is and what would do.
    """
    if isinstance(value, bool):
        if name in BARE_FLAGS and not value:
            raise ValueError("false; this flag has no opposite, leave it out")
        return (f"--{name}" if value else f"--no-{name}",)
    if isinstance(value, dict):
        return (f"--{name}={_json(value)}",)
    if isinstance(value, (list, tuple)):
        return _list_words(name, list(value))
    return (f"--{name}={_scalar(value)}",)


def ray_words(name: str, value: Any) -> tuple[str, ...]:
    """
    One option of `ray start`; its flags are click's, so they have no `--no-` form.

    Raises:
        ValueError: says what *value* is and what would do.
    """
    if isinstance(value, bool) and name not in RAY_BOOLEANS:
        if not value:
            raise ValueError("false; flags of `ray start` have no opposite, leave it out")
        return (f"--{name}",)
    if isinstance(value, dict):
        return (f"--{name}={_json(value)}",)
    if isinstance(value, (list, tuple)):
        raise ValueError("a list; `ray start` takes text with commas")  # noqa: TRY004 - the value is wrong, not our call
    return (f"--{name}={_scalar(value)}",)


def _list_words(name: str, items: list[Any]) -> tuple[str, ...]:
    if not items:
        raise ValueError("an empty list; the option needs a value, or leave it out")
    structured = any(isinstance(item, (dict, list, tuple)) for item in items)
    if name in JSON_ITEMS and all(isinstance(item, dict) for item in items):
        return (f"--{name}", *(_json(item) for item in items))
    if structured or name in JSON_LISTS:
        return (f"--{name}={_json(items)}",)
    words = [_scalar(item) for item in items]
    if name in REPEATED:
        return tuple(f"--{name}={word}" for word in words)
    for item, word in zip(items, words, strict=True):
        if not word or (word.startswith("-") and not isinstance(item, (int, float))):
            raise ValueError(
                f'a list with "{word}" in it; vLLM would take that for an option, or for nothing'
            )
    return (f"--{name}", *words)


def _scalar(value: Any) -> str:
    if value is None:
        raise ValueError("empty; the option needs a value, or leave it out")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value}; there is no such number on a command line")
    return _one_line(str(value))


def _json(value: Any) -> str:
    """Keep the order of the file: the operator reads it again in serve.args."""
    try:
        return _one_line(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
    except ValueError as error:
        raise ValueError("a value with .nan or .inf in it; JSON has no such numbers") from error


def _one_line(text: str) -> str:
    """One argument is one line of the file: nothing in it may end a line for any reader of it."""
    if "\0" in text or text != "".join(text.splitlines()):
        raise ValueError("text with a line break or NUL in it; every argument is one line")
    return text
