"""What only inventory and recipe together can get wrong."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import FileError, SparkDeployError, one_or_many
from orchestrator.load.document import read_document
from orchestrator.load.options import normal
from orchestrator.load.owned import SIZES
from orchestrator.load.problems import in_file_order
from orchestrator.planning.arguments import parallel_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.inventory import Inventory
    from orchestrator.model.recipe import Recipe


def check_pair(inventory: Inventory, recipe: Recipe) -> None:
    """
    Raises:
        FileError, ManyError: the recipe cannot run on these nodes; `at` is a place in the recipe.
    """
    problems: list[SparkDeployError] = [*_sizes(inventory, recipe), *_rdma_switched_off(inventory, recipe)]
    if problems:
        raise one_or_many(in_file_order(problems))


def _sizes(inventory: Inventory, recipe: Recipe) -> Iterator[FileError]:
    nodes = len(inventory.nodes)
    sizes = parallel_sizes(recipe, nodes)
    product = math.prod(sizes)
    if product == nodes:
        return
    given = [name for name in SIZES if name in recipe.vllm]
    shown = [(name, size) for name, size in zip(SIZES, sizes, strict=True) if size > 1 or name in given]
    names = " × ".join(name for name, _size in shown)  # noqa: RUF001 - the sign of a product
    factors = " × ".join(str(size) for _name, size in shown)  # noqa: RUF001
    result = f"{factors} = {product}" if len(shown) > 1 else factors
    yield FileError(
        f"{names} is {result}, but {inventory.source} has {nodes} nodes of one GPU each",
        at=_place(recipe, "vllm", given[0]),
        wanted=f"a product of {nodes}",
        hint="left out, tensor-parallel-size is what fills the nodes",
    )


def _rdma_switched_off(inventory: Inventory, recipe: Recipe) -> Iterator[FileError]:
    if inventory.transport != "rdma":
        return
    disabled, net = recipe.env.get("NCCL_IB_DISABLE", "0") != "0", recipe.env.get("NCCL_NET")
    for name, off in (("NCCL_IB_DISABLE", disabled), ("NCCL_NET", net == "Socket")):
        if off:
            yield FileError(
                f"env.{name} is {recipe.env[name]}, but {inventory.source} says transport: rdma",
                at=_place(recipe, "env", name),
                hint="leave it out, or write transport: tcp into the inventory",
            )


def _place(recipe: Recipe, section: str, name: str) -> str:
    """Give the file and line of an option."""
    document = read_document(Path(recipe.source), "recipe")
    written = next((key for key in document.data.get(section, {}) if name in (key, normal(key))), name)
    return document.at((section, written))
