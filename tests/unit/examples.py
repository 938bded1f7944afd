"""A pair, a recipe and what its nodes say, for tests that need them whole."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Interface
from typing import TYPE_CHECKING, Any

from orchestrator.model.facts import Container, DockerFacts, ImageFacts, ModelFacts, NodeFacts
from orchestrator.model.inventory import Api, Fabric, Inventory, Node, Paths
from orchestrator.model.recipe import Recipe
from orchestrator.model.state import NodeState

if TYPE_CHECKING:
    from orchestrator.model.release import Release

HCAS = ("rocep1s0f1", "roceP2p1s0f1")
NOW = 1_700_000_000.0


def node(rank: int, **changes: Any) -> Node:
    fabric = Fabric("enp1s0f1np1", IPv4Interface(f"192.168.200.{rank + 1}/24"), HCAS)
    return replace(Node(f"spark-{rank + 1}", rank, f"spark-{rank + 1}", fabric, Paths()), **changes)


INVENTORY = Inventory("home", "tiny", (node(0), node(1)), Api("127.0.0.1", 8000), source="home.yaml")
RECIPE = Recipe("tiny", "org/tiny", "example/vllm:1", {"max-model-len": 512}, source="tiny.yaml")


def facts(rank: int = 0, inventory: Inventory = INVENTORY, **changes: Any) -> NodeFacts:
    """Give a healthy node on which nothing runs."""
    this = inventory.nodes[rank]
    healthy = NodeFacts(
        node=this.name,
        user="op",
        home="/home/op",
        machine="aarch64",
        clock=NOW,
        docker=DockerFacts(version="28.2.2"),
        image=ImageFacts("sha256:abc", "arm64"),
        model=ModelFacts("/hub/tiny", has_config=True, weights=("model.safetensors",)),
        addresses={this.fabric.interface: (this.fabric.ip,), "eth0": ("10.0.0.1",)},
        routes={other.fabric.ip: this.fabric.interface for other in inventory.others(this)},
        hcas=HCAS,
        infiniband_devices=("uverbs0", "rdma_cm"),
        state_free_bytes=10**11,
    )
    return replace(healthy, **changes)


def pair_facts(inventory: Inventory = INVENTORY, **changes: Any) -> dict[str, NodeFacts]:
    return {this.name: facts(this.rank, inventory, **changes) for this in inventory.nodes}


def container(release: str, name: str = "spark-deploy-home", **changes: Any) -> Container:
    return replace(Container(name, "home", "spark-1", release, "running", 0, 0, "sha256:abc"), **changes)


def state(phase: str, release: str, node_name: str = "spark-1", **changes: Any) -> NodeState:
    return replace(NodeState("home", node_name, "head", release, phase, NOW - 60, NOW - 1), **changes)


def serving_facts(release: Release, phase: str = "serving") -> dict[str, NodeFacts]:
    """Give a pair that runs *release*, whole and unchanged."""
    return {
        this.name: facts(
            this.rank,
            containers=(container(release.id12, node=this.name),),
            state=state(phase, release.id12, this.name),
            releases={release.id12: {file.path: file.sha256 for file in release.by_node[this.name]}},
            desired="up run-1",
        )
        for this in INVENTORY.nodes
    }
