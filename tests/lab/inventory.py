"""Inventories and recipes for the lab."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import yaml

from . import images
from .files import MODEL
from .topology import FABRIC, HCAS, Machine

if TYPE_CHECKING:
    from pathlib import Path

    from .admin import AdminHome

Tree = dict[str, Any]
RECIPE: Tree = {
    "model": MODEL,
    "image": images.STUB.name,
    "vllm": {"served-model-name": "stub", "max-model-len": 4096},
    "start_limit_s": 60,
}
# What the real engine needs; lab sizes, not advice.
REAL_RECIPE: Tree = {
    "model": str(images.MODEL),
    "image": images.REAL.name,
    "vllm": {
        "served-model-name": "tiny",
        "enforce-eager": True,
        "max-model-len": 512,
        "max-num-seqs": 4,
        "kv-cache-memory-bytes": "64M",
    },
    "ray": {"num-cpus": 2, "object-store-memory": 100000000},
    "env": {"OMP_NUM_THREADS": "1", "VLLM_CPU_CI_ENV": "1", "TORCHDYNAMO_DISABLE": "1"},
    "supervision": {"join_limit_s": 120},  # two cores and other tests beside it
    "start_limit_s": 600,
}


def write_inventory(
    admin: AdminHome,
    *,
    file: str = "spark-deploy.yaml",
    suffix: str = "",
    recipe: Mapping[str, Any] | None = None,
    recipe_name: str = "stub",
    worker: Mapping[str, Any] | None = None,
    **overrides: Any,
) -> Path:
    """
    Write *file* and recipes/*recipe_name*.yaml into the admin's home.

    *recipe*, *worker* (every worker) and the rest (the inventory's own keys, `head` among them) are laid over the
    lab's defaults, mapping by mapping; a None takes the key away. *suffix* picks the SSH alias: "-root",
    "-nodocker", "-jump".
    """
    head, *workers = admin.lab.topology.nodes
    tree: Tree = {
        "name": "lab",
        "recipe": recipe_name,
        "head": node(head, suffix),
        "workers": [merged(node(one, suffix), worker or {}) for one in workers],
        "api": {"bind": "127.0.0.1", "port": 8000},
    }
    path = admin.home / file
    path.write_text(dump(merged(tree, overrides)))
    recipes = admin.home / "recipes"
    recipes.mkdir(exist_ok=True)
    (recipes / f"{recipe_name}.yaml").write_text(dump(merged(RECIPE, recipe or {})))
    return path


def node(machine: Machine, suffix: str = "") -> Tree:
    fabric = {"interface": FABRIC, "ip": machine.fabric_ip, "hcas": list(HCAS)}
    return {"name": machine.name, "ssh": f"{machine.name}{suffix}", "fabric": fabric}


def merged(tree: Mapping[str, Any], over: Mapping[str, Any]) -> Tree:
    result = dict(tree)
    for key, value in over.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(result.get(key), Mapping):
            result[key] = merged(result[key], value)
        else:
            result[key] = value
    return result


def dump(tree: Tree) -> str:
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
