"""The shape of inventories and recipes. What keys mean together: inventory.py, recipe.py, pair.py."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from orchestrator.load.wanted import (
    BindAddress,
    CommandWord,
    DeploymentName,
    FabricAddress,
    HcaName,
    ImageReference,
    InterfaceName,
    ModelReference,
    NodeFolder,
    NodeName,
    Port,
    RecipeReference,
    Seconds,
    SecretName,
    SshTarget,
    Text,
    refuse,
)
from orchestrator.model.inventory import Ports
from orchestrator.model.recipe import Recipe


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class FabricSchema(_Strict):
    interface: InterfaceName
    ip: FabricAddress
    hcas: list[HcaName] = Field(default=[])


class PathsSchema(_Strict):
    state: NodeFolder | None = None
    huggingface: NodeFolder | None = None
    cache: NodeFolder | None = None


class NodeSchema(_Strict):
    name: NodeName | None = None
    ssh: SshTarget
    fabric: FabricSchema
    paths: PathsSchema = Field(default=PathsSchema())


def _at_least_one(nodes: list[NodeSchema]) -> list[NodeSchema]:
    if not nodes:
        raise refuse("at least one node", "a model that fits one node needs no spark-deploy")
    return nodes


AtLeastOneNode = Annotated[list[NodeSchema], AfterValidator(_at_least_one)]


def _ray(name: str) -> str:
    if name != "ray":
        raise refuse("ray", "vLLM's own multi-node mode, mp, is not supported yet")
    return name


Executor = Annotated[Text, AfterValidator(_ray)]


class ApiSchema(_Strict):
    bind: BindAddress
    port: Port = 8000


class PortsSchema(_Strict):
    ray: Port = Ports.ray
    heartbeat: Port = Ports.heartbeat


class SecretsFromSchema(_Strict):
    file: Text = ""
    command: list[CommandWord] = Field(default=[])

    @model_validator(mode="before")
    @classmethod
    def _one_of_three(cls, value: Any) -> Any:
        if value == "environment":
            return {}
        if not isinstance(value, dict) or set(value) not in ({"file"}, {"command"}):
            raise refuse("environment, {file: PATH} or {command: [PROGRAM, ARGUMENT, …]}")
        return value


class InventorySchema(_Strict):
    name: DeploymentName
    recipe: RecipeReference = ""
    head: NodeSchema
    workers: AtLeastOneNode
    api: ApiSchema
    transport: Literal["rdma", "tcp"] = "rdma"
    gpus: Literal["all", "cdi"] = "all"
    ports: PortsSchema = Field(default=PortsSchema())
    paths: PathsSchema = Field(default=PathsSchema())
    secrets_from: SecretsFromSchema | None = None


class SupervisionSchema(_Strict):
    """Defaults live in orchestrator.model.recipe.Supervision alone."""

    link_lost_s: Seconds | None = None
    peer_timeout_s: Seconds | None = None
    hang_s: Seconds | None = None
    probe_s: Seconds | None = None
    join_limit_s: Seconds | None = None
    attempts: Annotated[int, Field(ge=1, le=100)] | None = None
    healthy_s: Seconds | None = None
    stuck_s: Seconds | None = None


class RecipeSchema(_Strict):
    model: ModelReference
    image: ImageReference
    executor: Executor = "ray"
    vllm: dict[str, Any] = Field(default={})
    ray: dict[str, Any] = Field(default={})
    env: dict[str, Any] = Field(default={})
    secrets: list[SecretName] = Field(default=[])
    offline: bool = True
    start_limit_s: Seconds = Recipe.start_limit_s
    supervision: SupervisionSchema = Field(default=SupervisionSchema())
