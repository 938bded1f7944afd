"""
The environment of a node's container: every variable with the reason that it is set.

The same table for readers, with the sources in full, stands in docs/inventory.md.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.model.inventory import Inventory, Node
    from orchestrator.model.recipe import Recipe

HUGGINGFACE = "/spark-deploy/huggingface"
CACHE = "/spark-deploy/cache"
RELEASE = "/spark-deploy/release"
RUN = "/spark-deploy/run"


@dataclass(frozen=True)
class Variable:
    """One line of node.env; *why* is the comment above it."""

    name: str
    value: str
    why: str


@dataclass(frozen=True)
class Group:
    """Variables that belong together, under one heading."""

    title: str
    variables: tuple[Variable, ...]


# Values that belong to one node: vLLM must not copy the head's to the workers. NCCL_IB_GID_INDEX is
# never set here (indices differ per node and drift over reboots) but an image may set it.
PER_NODE = (
    "VLLM_HOST_IP",
    "NCCL_SOCKET_IFNAME",
    "GLOO_SOCKET_IFNAME",
    "TP_SOCKET_IFNAME",
    "UCX_NET_DEVICES",
    "OMPI_MCA_btl_tcp_if_include",
    "NCCL_IB_HCA",
    "NCCL_IB_GID_INDEX",
)

_TRANSPORT = (
    Variable("NCCL_DEBUG", "INFO", "the log is the only proof of NET/IB against NET/Socket"),
    Variable("NCCL_DEBUG_SUBSYS", "INIT,NET", "what that proof needs, no more"),
    Variable("NCCL_IB_DISABLE", "0", "1 costs about 4 times the bandwidth; an image may set it"),
    Variable("NCCL_IGNORE_CPU_AFFINITY", "1", "eugr/spark-vllm-docker, sparkrun"),
)
_FOLDERS = (
    Variable("HF_HOME", HUGGINGFACE, "paths.huggingface of this node, whole: snapshots are symlinks"),
    Variable("VLLM_CONFIG_ROOT", RELEASE, "where vLLM reads ray_non_carry_over_env_vars.json"),
    Variable(
        "VLLM_CACHE_ROOT", f"{CACHE}/vllm", "torch.compile, AOT and DeepGEMM results outlive the container"
    ),
    Variable("TRITON_CACHE_DIR", f"{CACHE}/triton", "the same for Triton"),
    Variable("FLASHINFER_WORKSPACE_BASE", f"{CACHE}/flashinfer", "the same for FlashInfer"),
    Variable(
        "TORCHINDUCTOR_CACHE_DIR",
        f"{CACHE}/torchinductor",
        "the same for Inductor outside vLLM's own cache",
    ),
    Variable("TILELANG_CACHE_DIR", f"{CACHE}/tilelang", "the same for TileLang"),
    Variable("CUDA_CACHE_PATH", f"{CACHE}/cuda", "the same for PTX compiled by the driver"),
)
_OFFLINE = (
    Variable("HF_HUB_OFFLINE", "1", "recipe: offline; a missing file fails at once"),
    Variable("TRANSFORMERS_OFFLINE", "1", "the same for transformers"),
)
_QUIET = (
    Variable("VLLM_NO_USAGE_STATS", "1", "vLLM's usage statistics"),
    Variable("DO_NOT_TRACK", "1", "the same, by the common name"),
    Variable("RAY_USAGE_STATS_ENABLED", "0", "Ray's usage statistics"),
    Variable("HF_HUB_DISABLE_TELEMETRY", "1", "Hugging Face's"),
)


def _owned(reason: str, *names: str | Variable) -> dict[str, str]:
    return {name if isinstance(name, str) else name.name: reason for name in names}


# What a recipe may not set, and why. Names that are a prefix end in `*`.
OWNED: dict[str, str] = {
    **_owned(
        "it comes from each node's fabric settings in the inventory",
        *PER_NODE,
        "MASTER_ADDR",
        "RAY_NODE_IP_ADDRESS",
        "RAY_OVERRIDE_NODE_IP_ADDRESS",
    ),
    "NCCL_IB_GID_INDEX": "indices differ per node and drift over reboots; NCCL finds the right one",
    **_owned(
        "the tool makes one token per deployment", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
    ),
    "RAY_memory_monitor_refresh_ms": "Ray's memory monitor kills vLLM on unified memory",
    **_owned(
        "it is computed from supervision.peer_timeout_s, and slower",
        "RAY_health_check_*",
        "RAY_gcs_rpc_server_reconnect_timeout_s",
    ),
    **_owned("usage statistics are always off", *_QUIET),
    **_owned("it follows the recipe's `offline`", *_OFFLINE),
    **_owned(
        "it names a folder that is mounted into the container (inventory: paths)",
        *_FOLDERS,
        "HF_HUB_CACHE",
        "HUGGINGFACE_HUB_CACHE",
        "TRANSFORMERS_CACHE",
    ),
    **_owned("the supervisor sets it for its children", "RAY_ADDRESS", "TMPDIR", "RAY_TMPDIR"),
    "SPARK_DEPLOY_*": "the name is the tool's own",
}

_SECRET = re.compile(
    r"(?:TOKEN|API_KEY|SECRET|SECRET_KEY|ACCESS_KEY|PASSWORD|PASSWD|CREDENTIALS)\Z", re.IGNORECASE
)


def owner_reason(name: str) -> str | None:
    """Why a recipe may not set *name*; None where it may."""
    for owned, reason in OWNED.items():
        if name == owned or (owned.endswith("*") and name.startswith(owned[:-1])):
            return reason
    return None


def looks_secret(name: str) -> bool:
    """Whether the value of *name* is one that must not stand in a file of the release."""
    return bool(_SECRET.search(name))


def environment(inventory: Inventory, recipe: Recipe, node: Node) -> tuple[Group, ...]:
    """Give *node*'s variables in groups; what the recipe's `env` names replaces a default."""
    master = Variable(
        "MASTER_ADDR", inventory.head.fabric.ip, "the head's fabric address, the same on every node"
    )
    groups = (
        Group("This node on the fabric (never copied to another node)", _fabric(node)),
        Group("The pair", (master,)),
        Group("Transport", _TRANSPORT),
        Group("Ray", _ray(recipe)),
        Group("vLLM", _vllm(recipe)),
        Group("Folders of the container", _FOLDERS),
        Group("No call to any other network", (*(_OFFLINE if recipe.offline else ()), *_QUIET)),
    )
    defaults = {variable.name: variable.value for group in groups for variable in group.variables}
    kept = [
        Group(group.title, tuple(v for v in group.variables if v.name not in recipe.env)) for group in groups
    ]
    own = tuple(
        Variable(name, value, f"recipe, instead of {defaults[name]}" if name in defaults else "recipe")
        for name, value in recipe.env.items()
    )
    return tuple(group for group in (*kept, Group("The recipe's env", own)) if group.variables)


def _fabric(node: Node) -> tuple[Variable, ...]:
    interface = node.fabric.interface
    variables = [
        Variable(
            "VLLM_HOST_IP",
            node.fabric.ip,
            "own fabric address = Ray's --node-ip-address; else vLLM waits for ever",
        ),
        Variable("NCCL_SOCKET_IFNAME", interface, "NCCL's bootstrap (and its data with NET/Socket)"),
        Variable("GLOO_SOCKET_IFNAME", interface, "torch.distributed's CPU group"),
        Variable("TP_SOCKET_IFNAME", interface, "TensorPipe"),
        Variable("UCX_NET_DEVICES", interface, "UCX, as NVIDIA's two-Spark playbook sets it"),
        Variable("OMPI_MCA_btl_tcp_if_include", interface, "Open MPI, the same playbook"),
    ]
    if node.fabric.hcas:
        hcas = ",".join(node.fabric.hcas)
        variables.append(
            Variable("NCCL_IB_HCA", hcas, "both twins of the port: one alone has half the bandwidth")
        )
    return tuple(variables)


def _ray(recipe: Recipe) -> tuple[Variable, ...]:
    return (
        Variable(
            "RAY_memory_monitor_refresh_ms",
            "0",
            "the monitor (95 %) kills vLLM during graph capture: memory is unified",
        ),
        Variable(
            "RAY_health_check_failure_threshold",
            str(health_check_threshold(recipe.supervision.peer_timeout_s)),
            "misses of 13 s each: Ray lets go later than the supervisors, so that one place decides",
        ),
        Variable(
            "RAY_gcs_rpc_server_reconnect_timeout_s",
            str(math.ceil(max(60, 2 * recipe.supervision.peer_timeout_s))),
            "the worker's side of the same",
        ),
        Variable("RAY_AUTH_MODE", "token", "Ray's GCS listens on every address; older Ray ignores it"),
        Variable("RAY_DEDUP_LOGS", "0", "equal lines of two ranks are two facts"),
        Variable("RAY_COLOR_PREFIX", "0", "Ray colours its prefixes even with NO_COLOR"),
    )


def health_check_threshold(peer_timeout_s: float) -> int:
    """
    Misses after which Ray declares a node dead: about twice *peer_timeout_s*, never under Ray's own 5.

    A miss takes Ray's 3 s period and 10 s time limit: 5 of them were measured as 64 s (docs/inventory.md).
    """
    return max(5, math.ceil(2 * peer_timeout_s / 13))


def _vllm(recipe: Recipe) -> tuple[Variable, ...]:
    ready_s = str(math.ceil(max(3600, recipe.start_limit_s)))
    return (
        Variable("VLLM_ENGINE_READY_TIMEOUT_S", ready_s, "vLLM's 600 s kill a first start that compiles"),
        Variable(
            "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", "1800", "the first request may compile, too (vLLM: 300 s)"
        ),
    )
