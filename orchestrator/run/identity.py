"""Which deployment is measured: what runs on the nodes, not what the files here would make of it."""

from __future__ import annotations

import json
import re
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.diagnosis.cold import cold_reason
from orchestrator.errors import SparkDeployError, StepFailedError
from orchestrator.model.bench import Deployment
from orchestrator.model.plan import Script
from orchestrator.planning import layout
from orchestrator.planning.facts import model_folder, split_sections
from orchestrator.planning.render import render_script

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.client.abilities import Capabilities
    from orchestrator.model.facts import NodeFacts
    from orchestrator.model.inventory import Inventory
    from orchestrator.model.recipe import Recipe
    from orchestrator.remote.host import Host

MODEL_LIMIT_S = 60
LOG_LINES = 500  # more than an engine says in one request


@dataclass(frozen=True)
class OnHead:
    """What the head's disk says of the model, and what a small request takes there."""

    config: Mapping[str, Any] = field(default_factory=dict)  # of config.json; empty: there is none
    weight_bytes: int | None = None
    rtt_ms: float | None = None  # None: no curl


def model_script(inventory: Inventory, recipe: Recipe) -> Script:
    api, head = inventory.api, inventory.head
    host = f"[{api.local}]" if ":" in api.local else api.local
    text = render_script(
        "model",
        inventory,
        head,
        model_folder=model_folder(recipe, head),
        hub_reference="" if recipe.local_model else str(recipe.vllm.get("revision", "main")),
        url=f"http://{host}:{api.port}/health",
    )
    return Script(text, MODEL_LIMIT_S)


def ask_head(inventory: Inventory, recipe: Recipe, head: Host) -> OnHead:
    """Nothing is known where the script fails: no measurement depends on it. Raises UnreachableError."""
    script = model_script(inventory, recipe)
    return parse_on_head(head.run(script.text, timeout_s=script.timeout_s).stdout)


def parse_on_head(output: str) -> OnHead:
    sections = split_sections(output)
    config = _json(sections.get("config", []))
    total = re.search(r"\d+", " ".join(sections.get("total_size", [])))
    files = sum(int(line) for line in sections.get("files", []) if line.isdigit())
    return OnHead(config, int(total.group()) if total else files or None, _rtt_ms(sections.get("rtt", [])))


def _json(lines: Sequence[str]) -> dict[str, Any]:
    try:
        value = json.loads("\n".join(lines))
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _rtt_ms(lines: Sequence[str]) -> float | None:
    """The median; the first request also took the connecting."""
    taken = [1000 * float(line) for line in lines[1:] if re.fullmatch(r"\d+\.\d+", line)]
    return statistics.median(taken) if any(taken) else None  # nobody answered: all are 0


def added_ms(through: float | None, there: float | None) -> float | None:
    """What the way *through* SSH adds to a small request that takes *there* on the node itself; both in ms."""
    return None if through is None or there is None else max(0.0, through - there)


def identify(
    inventory: Inventory,
    recipe: Recipe,
    facts: Mapping[str, NodeFacts],
    known: Capabilities,
    head: Host,
    on_head: OnHead,
) -> Deployment:
    """
    Give the deployment as it runs. Its arguments are read from the head's release folder.

    Raises:
        UnreachableError: the head is lost.
    """
    fact = facts.get(inventory.head.name)
    container = fact.container(inventory.container) if fact else None
    release = container.release if container else ""
    args = _serve_args(inventory, head, release)
    return Deployment(
        name=inventory.name,
        release=release,
        model=known.model,
        root=args[0] if args else known.root,  # not /v1/models' word: a folder there may be a snapshot's
        quant=quant_of(on_head.config, args),
        image=recipe.image if fact and container and fact.image.id == container.image else "",
        image_id=container.image if container else "",
        engine=known.engine,
        engine_version=known.version,
        args=args,
        nodes=tuple(node.name for node in inventory.nodes),
        tensor_parallel=_size(args, "tensor-parallel-size"),
        transport=fact.state.transport if fact and fact.state else "",
        max_model_len=known.max_model_len,
    )


def _serve_args(inventory: Inventory, head: Host, release: str) -> tuple[str, ...]:
    """The model and the options of `vllm serve`, one a line; secrets are in another file."""
    try:
        content = head.read(layout.releases_folder(inventory, head.node) / release / "serve.args")
    except StepFailedError:
        content = None
    return tuple((content or b"").decode("utf-8", "replace").splitlines())


def _size(args: Sequence[str], option: str) -> int | None:
    found = re.search(rf"^--{option}=(\d+)$", "\n".join(args), re.MULTILINE)
    return int(found.group(1)) if found else 1 if args else None


def quant_of(config: Mapping[str, Any], args: Sequence[str]) -> str:
    """`fp8`, `nvfp4`, `gptq-int4` …, else the type of the weights: by config.json, or an option of the engine."""
    inner = config.get("text_config")
    text = inner if isinstance(inner, dict) else {}
    stored = config.get("quantization_config") or text.get("quantization_config")
    asked = re.search(r"^--quantization=(\S+)$", "\n".join(args), re.MULTILINE)
    if isinstance(stored, dict):
        return _quant(stored)
    if asked:
        return asked.group(1)
    kinds = (one.get(name) for one in (config, text) for name in ("dtype", "torch_dtype"))
    return next((str(kind) for kind in kinds if kind), "")


def _quant(stored: Mapping[str, Any]) -> str:
    """ModelOpt names the algorithm, compressed-tensors the format, GPTQ and AWQ the bits."""
    method = str(stored.get("quant_method", "")).lower()
    detail = str(stored.get("quant_algo") or stored.get("format") or "").lower()
    named = re.search(r"nvfp4|mxfp4|mxfp8|fp8", f"{detail} {method}")
    if named or "bits" not in stored:
        return named.group() if named else detail or method
    return f"{method}-int{stored['bits']}"


class ColdLog:
    """Notes where the head's log ends; reason() then tells from what was added to it."""

    def __init__(self, inventory: Inventory, head: Host) -> None:
        self._container = inventory.container
        self._head = head
        self._before = self._tail()

    def reason(self) -> str:
        return cold_reason(_added(self._before, self._tail()))

    def _tail(self) -> tuple[str, ...]:
        try:
            log = b"".join(self._head.docker().logs(self._container, tail=LOG_LINES))
        except (SparkDeployError, OSError):
            return ()
        return tuple(log.decode("utf-8", "replace").splitlines())


def _added(before: Sequence[str], after: Sequence[str]) -> Sequence[str]:
    """The lines of *after* behind the last ones of *before*; all of them where those are out of sight."""
    last = tuple(before[-3:])
    for end in range(len(after), len(last) - 1, -1):
        if last and tuple(after[end - len(last) : end]) == last:
            return after[end:]
    return after
