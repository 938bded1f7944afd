"""What an operator says about the machines: inventories/*.yaml, parsed and checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import TYPE_CHECKING, Literal

from orchestrator.shell import NodePath

if TYPE_CHECKING:
    from ipaddress import IPv4Interface


@dataclass(frozen=True)
class Fabric:
    """The port that Ray, NCCL and Gloo use: one netdev for sockets, all its HCAs for RDMA."""

    interface: str
    address: IPv4Interface  # prefix /24 unless the inventory says otherwise
    hcas: tuple[str, ...]  # both twins of the port; empty only with transport: tcp

    @property
    def ip(self) -> str:
        return str(self.address.ip)


@dataclass(frozen=True)
class Paths:
    """Folders on a node; `~/` is the home of the user we log in as."""

    state: NodePath = NodePath("~/.spark-deploy")
    huggingface: NodePath = NodePath("~/.cache/huggingface")
    cache: NodePath = NodePath("~/.cache/spark-deploy")  # compiled kernels: vLLM, Triton, FlashInfer


@dataclass(frozen=True)
class Node:
    """One machine. Its rank is its place in the inventory; the head is rank 0."""

    name: str
    rank: int
    ssh: str  # HOST, user@HOST:port, or a Host of ~/.ssh/config: exactly as written
    fabric: Fabric
    paths: Paths

    @property
    def role(self) -> Literal["head", "worker"]:
        return "head" if self.rank == 0 else "worker"


@dataclass(frozen=True)
class Api:
    """Where `vllm serve` listens on the head."""

    bind: str
    port: int

    @property
    def local(self) -> str:
        """Where the head reaches it itself: loopback for an API that listens everywhere."""
        return "127.0.0.1" if self.bind in ("0.0.0.0", "::") else self.bind  # noqa: S104  # compared

    @property
    def loopback(self) -> bool:
        """Whether only the head itself reaches it."""
        return ip_address(self.bind).is_loopback


@dataclass(frozen=True)
class Ports:
    """TCP port of Ray's GCS and UDP port of the supervisors' heartbeat, both on the fabric address."""

    ray: int = 6379
    heartbeat: int = 6378


@dataclass(frozen=True)
class SecretSource:
    """Where the values of a recipe's `secrets` come from, on the machine that runs spark-deploy."""

    kind: Literal["environment", "file", "command"] = "environment"
    file: str = ""  # KEY=value lines, mode 0600
    command: tuple[str, ...] = ()  # prints KEY=value lines


@dataclass(frozen=True)
class Inventory:
    """One deployment: its name, its nodes in rank order (head first), where it listens."""

    name: str
    recipe: str  # name or path of the recipe that a bare `up` serves; "" = none
    nodes: tuple[Node, ...]
    api: Api
    transport: Literal["rdma", "tcp"] = "rdma"
    gpus: Literal["all", "cdi"] = "all"
    ports: Ports = field(default_factory=Ports)
    secrets_from: SecretSource = field(default_factory=SecretSource)
    source: str = ""  # the file it was read from

    @property
    def head(self) -> Node:
        return self.nodes[0]

    @property
    def workers(self) -> tuple[Node, ...]:
        return self.nodes[1:]

    @property
    def container(self) -> str:
        """The name of the one container that each node runs."""
        return f"spark-deploy-{self.name}"

    def node(self, name: str) -> Node:
        """Raises KeyError: no node has this name."""
        return {node.name: node for node in self.nodes}[name]

    def others(self, node: Node) -> tuple[Node, ...]:
        return tuple(other for other in self.nodes if other.rank != node.rank)
