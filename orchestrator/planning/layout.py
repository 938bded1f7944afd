"""Where everything of a deployment lies on a node, and what it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.model.inventory import Inventory, Node
    from orchestrator.model.release import Release
    from orchestrator.shell import NodePath


def node_folder(inventory: Inventory, node: Node) -> NodePath:
    """Everything of this deployment on this node; the node's name is in it since homes may be shared (NFS)."""
    return node.paths.state / inventory.name / node.name


def releases_folder(inventory: Inventory, node: Node) -> NodePath:
    return node_folder(inventory, node) / "releases"


def release_folder(inventory: Inventory, node: Node, release: Release) -> NodePath:
    return releases_folder(inventory, node) / release.id12


def run_folder(inventory: Inventory, node: Node) -> NodePath:
    """state.json, desired, evidence/, secrets.env: what changes while a release runs."""
    return node_folder(inventory, node) / "run"


def lock_folder(inventory: Inventory, node: Node) -> NodePath:
    """Outside the deployment's folder: a lock outlives what it guards."""
    return node.paths.state / "locks" / f"{inventory.name}.{node.name}"


def names(inventory: Inventory, node: Node) -> dict[str, str]:
    """Give all of it by the names that templates/scripts/ use."""
    return {
        "container": inventory.container,
        "deployment": inventory.name,
        "state": node.paths.state,
        "locks": node.paths.state / "locks",
        "lock": lock_folder(inventory, node),
        "node_folder": node_folder(inventory, node),
        "releases": releases_folder(inventory, node),
        "run_folder": run_folder(inventory, node),
    }
