"""What is measured: a deployment of ours, asked directly or through SSH, or any server by its URL."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.client.server import parse_url
from orchestrator.model.bench import Deployment
from orchestrator.remote.forward import forwarded
from orchestrator.run.endpoint import api_host, reachable
from orchestrator.run.identity import ColdLog, ask_head, identify
from orchestrator.run.telemetry import Telemetry, watching

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from orchestrator.client.abilities import Capabilities
    from orchestrator.client.server import Server
    from orchestrator.model.facts import NodeFacts
    from orchestrator.run.session import Session


def no_log() -> Callable[[], str]:
    return str


@dataclass(frozen=True)
class Place:
    """
    *identify* tells what is deployed there, by what its server says of itself.

    *log* is called before the first request, and what it gives after it: why that waited, "" where no log tells.
    """

    server: Server
    identify: Callable[[Capabilities], Deployment]
    config: Mapping[str, Any] = field(default_factory=dict)  # the model's config.json
    weight_bytes: int | None = None
    log: Callable[[], Callable[[], str]] = no_log
    telemetry: Telemetry = field(default_factory=Telemetry)
    through: str = ""  # the node whose SSH connection carries the requests
    rtt_there_ms: float | None = None  # of a small request, on that node itself


def place_of_url(server: Server) -> Place:
    def identify_server(known: Capabilities) -> Deployment:
        return Deployment(
            name=server.authority,
            model=known.model,
            root=known.root,
            engine=known.engine,
            engine_version=known.version,
            max_model_len=known.max_model_len,
        )

    return Place(server, identify_server)


@contextmanager
def place_of_deployment(session: Session, facts: Mapping[str, NodeFacts], key: str) -> Iterator[Place]:
    """
    Watch the nodes, and carry what cannot be reached from here through the head's SSH connection.

    Raises:
        UnreachableError: the head is lost, or its API does not listen.
        StepFailedError: its sshd forwards no TCP connection.
    """
    inventory, recipe, head = session.inventory, session.recipe, session.head
    on_head = ask_head(inventory, recipe, head)

    def identify_deployment(known: Capabilities) -> Deployment:
        return identify(inventory, recipe, facts, known, head, on_head)

    with _server(session, key) as server, watching(session.hosts, inventory) as telemetry:
        yield Place(
            server,
            identify_deployment,
            on_head.config,
            on_head.weight_bytes,
            lambda: ColdLog(inventory, head).reason,
            telemetry,
            head.node.name if server.connect else "",
            on_head.rtt_ms,
        )


@contextmanager
def _server(session: Session, key: str) -> Iterator[Server]:
    inventory, head = session.inventory, session.head
    api, port = inventory.api, inventory.api.port
    if reachable(inventory, head):
        yield parse_url(_url(api_host(inventory, head), port), key)
        return
    with forwarded(head, api.local, port) as near:
        yield parse_url(_url(api.local, port), key, connect=near)


def _url(host: str, port: int) -> str:
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
