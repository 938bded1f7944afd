"""What a node told about itself in one read-only round trip (templates/scripts/facts.sh.j2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.model.state import NodeState


@dataclass(frozen=True)
class Container:
    """One container that carries our label, ours or another deployment's, or that has our name without it."""

    name: str
    deployment: str  # "": not one of this tool's
    node: str
    release: str  # id12
    status: str  # running, exited, paused, restarting, created, dead
    exit_code: int
    restarts: int
    image: str  # the image's ID
    folder: str = ""  # of this deployment on this node, as it is mounted; "" where no run/ is


@dataclass(frozen=True)
class DockerFacts:
    """*problem* is the CLI's own complaint, "" when the engine answered."""

    problem: str = ""
    version: str = ""


@dataclass(frozen=True)
class ImageFacts:
    """*id* is "" where the image is not on the node."""

    id: str = ""
    architecture: str = ""  # as Docker says it: arm64, amd64


@dataclass(frozen=True)
class ModelFacts:
    """The model's folder on the node, "" where there is none, and what is missing in it."""

    folder: str = ""
    has_config: bool = False
    weights: tuple[str, ...] = ()  # files present and not empty
    wanted_weights: tuple[str, ...] = ()  # files that the safetensors index names


@dataclass(frozen=True)
class Listener:
    protocol: str  # tcp or udp
    address: str
    port: int
    process: str  # "" where we may not see it


@dataclass(frozen=True)
class LockFacts:
    """Who holds the deployment's lock on this node; *since* is seconds since the epoch on the holder's clock."""

    held: bool = False
    run: str = ""
    user: str = ""
    host: str = ""
    pid: int = 0
    since: float = 0


@dataclass(frozen=True)
class NodeFacts:
    """All of it. *clock* is the node's own, seconds since the epoch."""

    node: str
    user: str
    home: str
    machine: str  # uname -m
    clock: float
    docker: DockerFacts
    image: ImageFacts
    model: ModelFacts
    containers: tuple[Container, ...] = ()
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # netdev -> IPv4 addresses
    routes: Mapping[str, str] = field(default_factory=dict)  # a peer's fabric address -> netdev towards it
    listeners: tuple[Listener, ...] = ()
    hcas: tuple[str, ...] = ()
    infiniband_devices: tuple[str, ...] = ()
    releases: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # id12 -> file -> SHA-256
    state: NodeState | None = None
    desired: str = ""
    lock: LockFacts = field(default_factory=LockFacts)
    state_free_bytes: int = 0

    def container(self, name: str) -> Container | None:
        """Give the container of this tool that has this name."""
        return next((one for one in self.containers if one.name == name and one.deployment), None)

    def of(self, deployment: str) -> tuple[Container, ...]:
        """Every container of a deployment, whatever its name: one may have been renamed by hand."""
        return tuple(container for container in self.containers if container.deployment == deployment)
