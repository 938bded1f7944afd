"""What the supervisor reads: its settings, what an operator wants, the secrets. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Limits:
    """Seconds, but for *attempts*; supervise.json may set each of them."""

    link_lost_s: float = 5
    peer_timeout_s: float = 60
    hang_s: float = 120
    probe_s: float = 60
    join_limit_s: float = 25
    attempts: int = 5
    healthy_s: float = 3600
    start_limit_s: float = 3600
    stuck_s: float = 600


@dataclass(frozen=True)
class Settings:
    """What supervise.json says: this node, its peers (name to fabric address), the API of the head."""

    deployment: str
    node: str
    role: str
    fabric_ip: str
    peers: Mapping[str, str]
    head_ip: str
    ray_port: int
    heartbeat_port: int
    api_host: str
    api_port: int
    served_name: str
    model: str
    transport: str
    limits: Limits

    @property
    def nodes(self) -> dict[str, str]:
        """Fabric address to node name, this node among them."""
        return {self.fabric_ip: self.node, **{ip: name for name, ip in self.peers.items()}}

    @property
    def head(self) -> str:
        return self.nodes[self.head_ip]

    @property
    def ray_address(self) -> str:
        return f"{self.head_ip}:{self.ray_port}"


def parse_settings(text: str) -> Settings:
    """
    Read supervise.json; limits that it does not name keep their defaults.

    Raises:
        KeyError, TypeError, ValueError: it is not what `spark-deploy render` writes.
    """
    raw: dict[str, Any] = json.loads(text)
    known = {item.name for item in fields(Limits)}
    return Settings(
        deployment=raw["deployment"],
        node=raw["node"],
        role=raw["role"],
        fabric_ip=raw["fabric_ip"],
        peers={peer["node"]: peer["fabric_ip"] for peer in raw["peers"]},
        head_ip=raw["head_ip"],
        ray_port=raw["ray_port"],
        heartbeat_port=raw["heartbeat_port"],
        api_host=raw["api"]["host"],
        api_port=raw["api"]["port"],
        served_name=raw["served_name"],
        model=raw["model"],
        transport=raw["transport"],
        limits=Limits(**{key: value for key, value in raw.get("limits", {}).items() if key in known}),
    )


@dataclass(frozen=True)
class Desired:
    """What run/desired asks for; *run* names the `up` that wrote it."""

    down: bool = False
    run: str = ""


def parse_desired(text: str) -> Desired:
    """`up RUN` or `down`; anything else, and nothing, is up."""
    words = text.split()
    return Desired(down=words[:1] == ["down"], run=words[1] if words[:1] == ["up"] and len(words) > 1 else "")


def parse_secrets(text: str) -> dict[str, str]:
    """KEY=value lines; the value is everything after the first `=`."""
    lines = (line for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key.strip(): value for key, _, value in (line.partition("=") for line in lines)}
