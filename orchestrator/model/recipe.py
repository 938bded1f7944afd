"""What is served: inventories/recipes/*.yaml, parsed and checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Supervision:
    """Time limits of the supervisors, in seconds. Defaults and their sources: docs/supervision.md."""

    link_lost_s: float = 5
    peer_timeout_s: float = 60
    hang_s: float = 120
    probe_s: float = 60
    join_limit_s: float = 25
    attempts: int = 5
    healthy_s: float = 3600
    stuck_s: float = 600


@dataclass(frozen=True)
class Recipe:
    """One model, one image, the options of `vllm serve` and `ray start`."""

    name: str
    model: str  # a Hub id, or an absolute path present on every node
    image: str
    vllm: Mapping[str, Any]  # options without the leading dashes, in the order of the file
    ray: Mapping[str, Any] = field(default_factory=dict)  # the same for `ray start`
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()
    offline: bool = True
    start_limit_s: float = 3600
    supervision: Supervision = field(default_factory=Supervision)
    executor: str = "ray"
    source: str = ""

    @property
    def local_model(self) -> bool:
        """Whether the model is a folder on the nodes, mounted at the same path."""
        return self.model.startswith("/")

    @property
    def served_name(self) -> str:
        """Give the name that clients put into `model`: the first served-model-name, else the model itself."""
        names = self.vllm.get("served-model-name", self.model)
        return str(names[0] if isinstance(names, (list, tuple)) else names)
