"""The facts of a node: one script, and the parser of what it prints."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from orchestrator.model.facts import (
    Container,
    DockerFacts,
    ImageFacts,
    Listener,
    LockFacts,
    ModelFacts,
    NodeFacts,
)
from orchestrator.model.plan import Script
from orchestrator.model.state import parse_state
from orchestrator.planning import environment
from orchestrator.planning.render import render_script
from orchestrator.shell import NodePath

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.model.inventory import Inventory, Node
    from orchestrator.model.recipe import Recipe

# Measured 0.4 s on an idle node; a Docker engine that is just starting may need seconds to answer.
TIME_LIMIT_S = 30


def facts_script(inventory: Inventory, recipe: Recipe, node: Node) -> Script:
    text = render_script(
        "facts",
        inventory,
        node,
        image=recipe.image,
        model_folder=model_folder(recipe, node),
        hub_reference="" if recipe.local_model else str(recipe.vllm.get("revision", "main")),
        peers=[peer.fabric.ip for peer in inventory.others(node)],
    )
    return Script(text, TIME_LIMIT_S)


def model_folder(recipe: Recipe, node: Node) -> NodePath:
    """The folder of a local model, or the Hub's cache folder for it (huggingface_hub, repo_folder_name)."""
    if recipe.local_model:
        return NodePath(recipe.model)
    return node.paths.huggingface / "hub" / f"models--{recipe.model.replace('/', '--')}"


def parse_facts(node: Node, output: str) -> NodeFacts:
    """
    Give the facts in what facts.sh printed.

    Raises:
        ValueError: the output is cut: the script's last section is missing.
        KeyError: Docker describes a container without a name or a state.
    """
    sections = split_sections(output)
    if "end" not in sections:
        last = next(reversed(sections), "none")
        raise ValueError(f"the facts of {node.name} are cut after section {last}, wanted up to `end`")
    user, home, machine, clock = (sections["user"] + [""] * 4)[:4]
    return NodeFacts(
        node=node.name,
        user=user,
        home=home,
        machine=machine,
        clock=float(clock or 0),
        docker=_docker(sections["docker"]),
        image=_image(sections["image"]),
        model=_model(sections["model"]),
        containers=tuple(_container(raw) for raw in _json(sections["containers"], [])),
        addresses=_addresses(_json(sections["addresses"], [])),
        routes=_routes(sections["routes"]),
        listeners=tuple(_listeners(sections["listeners"])),
        hcas=_named(sections["infiniband"], "hca"),
        infiniband_devices=_named(sections["infiniband"], "device"),
        releases=_releases(sections["releases"]),
        state=parse_state("\n".join(sections["state"])),
        desired=" ".join(sections["desired"]),
        lock=parse_holder(sections["lock"][1:]) if sections["lock"] else LockFacts(),
        state_free_bytes=_first_number(sections["disk"]),
    )


def split_sections(output: str) -> dict[str, list[str]]:
    """Give the lines below each `@@ name`; blank ones are left out."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in output.splitlines():
        if line.startswith("@@ "):
            lines = sections.setdefault(line[3:].strip(), [])
        elif line.strip():
            lines.append(line)
    return sections


def _json(lines: Iterable[str], nothing: Any) -> Any:
    try:
        return json.loads("\n".join(lines))
    except ValueError:
        return nothing


def _docker(lines: list[str]) -> DockerFacts:
    answer = lines[-1] if lines else "no answer"
    if re.fullmatch(r"\d+\.\d+\S*", answer):
        return DockerFacts(version=answer)
    return DockerFacts(problem=" ".join(lines) or answer)


def _image(lines: list[str]) -> ImageFacts:
    images = _json(lines, [])
    return ImageFacts(images[0].get("Id", ""), images[0].get("Architecture", "")) if images else ImageFacts()


def _model(lines: list[str]) -> ModelFacts:
    return ModelFacts(
        folder=next(iter(_named(lines, "folder")), ""),
        has_config="config" in lines,
        weights=_named(lines, "weight"),
        wanted_weights=_named(lines, "wanted"),
    )


def _named(lines: Iterable[str], name: str) -> tuple[str, ...]:
    return tuple(line[len(name) + 1 :] for line in lines if line.startswith(f"{name} "))


def _container(raw: dict[str, Any]) -> Container:
    labels = raw["Config"]["Labels"] or {}
    return Container(
        name=raw["Name"].lstrip("/"),
        deployment=labels.get("spark-deploy.deployment", ""),
        node=labels.get("spark-deploy.node", ""),
        release=labels.get("spark-deploy.release", ""),
        status=raw["State"]["Status"],
        exit_code=raw["State"].get("ExitCode", 0),
        restarts=raw.get("RestartCount", 0),
        image=raw.get("Image", ""),
        folder=_mounted_folder(raw),
    )


def _mounted_folder(raw: dict[str, Any]) -> str:
    sources = [
        mount["Source"] for mount in raw.get("Mounts", []) if mount.get("Destination") == environment.RUN
    ]
    return sources[0].rpartition("/")[0] if sources else ""


def _addresses(links: list[dict[str, Any]]) -> dict[str, tuple[str, ...]]:
    return {
        link["ifname"]: tuple(
            info["local"] for info in link.get("addr_info", []) if info.get("family") == "inet"
        )
        for link in links
        if "ifname" in link
    }


def _routes(lines: list[str]) -> dict[str, str]:
    routes = [route for line in lines for route in _json([line], []) if isinstance(route, dict)]
    return {route["dst"]: route.get("dev", "") for route in routes if "dst" in route}


def _listeners(lines: list[str]) -> Iterable[Listener]:
    for line in lines:
        columns = line.split()
        if len(columns) < 5 or ":" not in columns[4]:
            continue
        address, _, port = columns[4].rpartition(":")
        if port.isdigit():
            process = re.search(r'users:\(\("([^"]+)"', line)
            yield Listener(
                columns[0], address.partition("%")[0], int(port), process.group(1) if process else ""
            )


def _releases(lines: list[str]) -> dict[str, dict[str, str]]:
    releases: dict[str, dict[str, str]] = {}
    for line in lines:
        match = re.fullmatch(r"([0-9a-f]{64})\s+\./([^/]+)/(.+)", line)
        if match:
            releases.setdefault(match.group(2), {})[match.group(3)] = match.group(1)
    return releases


def parse_holder(lines: Iterable[str]) -> LockFacts:
    """Give the lock that is held, with as much of its `holder` file's JSON as can be read."""
    holder = _json(lines, {})
    if not isinstance(holder, dict):
        return LockFacts(held=True)
    kinds = {f.name: (int, float) if f.name == "since" else type(f.default) for f in fields(LockFacts)}
    known: dict[str, Any] = {
        key: value for key, value in holder.items() if isinstance(value, kinds.get(key, ()))
    }
    return LockFacts(**{**known, "held": True})


def _first_number(lines: list[str]) -> int:
    match = re.search(r"\d+", " ".join(lines))
    return int(match.group()) if match else 0
