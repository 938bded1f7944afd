"""inventories/*.yaml into an Inventory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import FileError, one_or_many
from orchestrator.load.document import Document, Key, path_text, read_document
from orchestrator.load.problems import in_file_order, validated
from orchestrator.load.schema import InventorySchema, NodeSchema, PathsSchema, SecretsFromSchema
from orchestrator.load.wanted import NODE_NAME, fabric_interface
from orchestrator.model.inventory import Api, Fabric, Inventory, Node, Paths, Ports, SecretSource
from orchestrator.shell import NodePath

if TYPE_CHECKING:
    from collections.abc import Iterator
    from ipaddress import IPv4Interface


def load_inventory(path: Path) -> Inventory:
    """
    Give the inventory in *path*.

    Raises:
        FileError: one thing is wrong with it; `at` is its file and line.
        ManyError: several are.
    """
    document = read_document(path, "inventory")
    schema = validated(InventorySchema, document)
    problems = [*_unnamed(document, schema)] or [
        *_repeated(document, schema),
        *_off_the_fabric(document, schema),
        *_wrong_hcas(document, schema),
        *_one_port_twice(document, schema),
    ]
    if problems:
        raise one_or_many(in_file_order(problems))
    return Inventory(
        name=schema.name,
        recipe=schema.recipe,
        nodes=tuple(_node(rank, node, schema) for rank, (_key, node) in enumerate(_nodes(schema))),
        api=Api(schema.api.bind, schema.api.port),
        transport=schema.transport,
        gpus=schema.gpus,
        ports=Ports(schema.ports.ray, schema.ports.heartbeat),
        secrets_from=_secrets_from(schema.secrets_from, path),
        source=str(path),
    )


def _nodes(schema: InventorySchema) -> list[tuple[Key, NodeSchema]]:
    """Give the nodes in rank order, each with its key path."""
    return [
        (("head",), schema.head),
        *((("workers", index), node) for index, node in enumerate(schema.workers)),
    ]


def _node(rank: int, node: NodeSchema, schema: InventorySchema) -> Node:
    fabric = Fabric(node.fabric.interface, _address(node), tuple(node.fabric.hcas))
    return Node(_name(node), rank, node.ssh, fabric, _paths(node.paths, schema.paths))


def _name(node: NodeSchema) -> str:
    """Give the node's name, or the host part of its ssh, lower-cased; "" where that is no name."""
    if node.name:
        return node.name
    host = node.ssh.rpartition("@")[2].partition(":")[0].lower()
    return host if re.fullmatch(NODE_NAME, host) else ""


def _address(node: NodeSchema) -> IPv4Interface:
    return fabric_interface(node.fabric.ip)


def _paths(own: PathsSchema, common: PathsSchema) -> Paths:
    given = {**common.model_dump(exclude_none=True), **own.model_dump(exclude_none=True)}
    return Paths(**{name: NodePath(folder.rstrip("/")) for name, folder in given.items()})


def _secrets_from(schema: SecretsFromSchema | None, path: Path) -> SecretSource:
    if schema and schema.file:
        return SecretSource("file", file=str(path.parent / Path(schema.file).expanduser()))
    if schema and schema.command:
        return SecretSource("command", command=tuple(schema.command))
    return SecretSource()


def _unnamed(document: Document, schema: InventorySchema) -> Iterator[FileError]:
    for key, node in _nodes(schema):
        if not _name(node):
            yield FileError(
                f"{path_text((*key, 'name'))} is missing, and the host in ssh is no name",
                at=document.at((*key, "ssh")),
                found=node.ssh,
                wanted="a name of a-z, 0-9 and -",
                hint="write it: name: spark-1",
            )


def _repeated(document: Document, schema: InventorySchema) -> Iterator[FileError]:
    """Each node has a name, a login and a fabric address of its own."""
    hints = {
        "name": "give each node its own name",
        "ssh": "two entries for one machine would fight over it",
        "fabric.ip": "give each node its own address on the fabric network",
    }
    seen: dict[tuple[str, str], Key] = {}
    for key, node in _nodes(schema):
        values = {"name": _name(node), "ssh": node.ssh, "fabric.ip": str(_address(node).ip)}
        for what, value in values.items():
            full: Key = (*key, *what.split("."))
            other = seen.setdefault((what, value), full)
            if other != full:
                owner = "the head" if other[0] == "head" else path_text(other[:2])
                yield FileError(
                    f"{path_text(full)} is {value}, which is also {owner}'s",
                    at=document.at(full),
                    hint=hints[what],
                )


def _off_the_fabric(document: Document, schema: InventorySchema) -> Iterator[FileError]:
    """All fabric addresses lie in the head's subnet."""
    network = _address(schema.head).network
    for key, node in _nodes(schema):
        address = _address(node)
        if address.network != network:
            yield FileError(
                f"{path_text((*key, 'fabric', 'ip'))} is {address.ip}, outside the head's subnet",
                at=document.at((*key, "fabric", "ip")),
                found=str(address.network),
                wanted=str(network),
                hint="the prefix is /24 unless written, as in 192.168.200.1/30; it is the same on all nodes",
            )


def _wrong_hcas(document: Document, schema: InventorySchema) -> Iterator[FileError]:
    """With RDMA every node names its HCAs, each of them once."""
    for key, node in _nodes(schema):
        hcas = (*key, "fabric", "hcas")
        if not node.fabric.hcas and schema.transport == "rdma":
            yield FileError(
                f"{path_text(hcas)} is {'an empty list' if hcas in document.lines else 'missing'}",
                at=document.at(hcas),
                wanted="the HCAs of the port, both twins, with transport: rdma",
                hint="`ls /sys/class/infiniband` on the node; e.g. [rocep1s0f1, roceP2p1s0f1]",
            )
        if len(set(node.fabric.hcas)) < len(node.fabric.hcas):
            yield FileError(
                f"{path_text(hcas)} names an HCA twice", at=document.at(hcas), wanted="each one once"
            )


def _one_port_twice(document: Document, schema: InventorySchema) -> Iterator[FileError]:
    """The TCP ports on the head differ; the heartbeat is UDP."""
    if schema.api.port == schema.ports.ray:
        yield FileError(
            f"api.port is {schema.api.port}, which is also ports.ray",
            at=document.at(("api", "port")),
            wanted="two different ports on the head",
        )
