"""A release as text: what lies on each node, with its SHA-256, and every file once. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.model.inventory import Inventory
    from orchestrator.model.release import Release, ReleaseFile


def table(inventory: Inventory, release: Release) -> str:
    """Give the release's id and one line per file of every node: SHA-256, bytes, mode, path."""
    lines = [f"release {release.id12} of {release.deployment} (sha256 of manifest.json: {release.id})"]
    for node in inventory.nodes:
        lines += ["", f"{node.name} ({node.role})"]
        lines += [
            f"  {file.sha256}  {len(file.content):>6}  {file.mode:04o}  {file.path}"
            for file in release.by_node[node.name]
        ]
    return "\n".join(lines) + "\n"


def listing(inventory: Inventory, release: Release) -> str:
    """Give the table, then the content of every file; one that several nodes share stands once."""
    shown: dict[tuple[str, str], list[str]] = {}
    contents: dict[tuple[str, str], ReleaseFile] = {}
    for node in inventory.nodes:
        for file in release.by_node[node.name]:
            shown.setdefault((file.path, file.sha256), []).append(node.name)
            contents[file.path, file.sha256] = file
    blocks = [f"==> {', '.join(nodes)}: {key[0]} <==\n{_text(contents[key])}" for key, nodes in shown.items()]
    return "\n".join([table(inventory, release), *blocks])


def _text(file: ReleaseFile) -> str:
    text = file.content.decode()
    return text if text.endswith("\n") or not text else f"{text}\n"
