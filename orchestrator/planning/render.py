"""
Inventory and recipe into the files that run on the nodes.

The templates' engine lets no value through that did not pass one of three filters: `sh` (one shell word),
`envfile` (one literal line), `json`.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jinja2

from orchestrator import assets, shell
from orchestrator.model.release import Release, ReleaseFile
from orchestrator.planning import arguments, environment, layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from orchestrator.model.inventory import Inventory, Node
    from orchestrator.model.recipe import Recipe


class Safe(str):
    """Text that went through a filter, and may stand in a rendered file."""

    __slots__ = ()


def render_release(inventory: Inventory, recipe: Recipe) -> Release:
    """Give the files of every node. Their bytes depend on *inventory* and *recipe* alone."""
    files = {node.name: _node_files(inventory, recipe, node) for node in inventory.nodes}
    manifest = ReleaseFile("manifest.json", _manifest(inventory, recipe, files))
    return Release(inventory.name, manifest, {name: (*own, manifest) for name, own in files.items()})


def render_script(name: str, inventory: Inventory, node: Node, **values: Any) -> str:
    """Give templates/scripts/*name*, which may use every name of the layout beside *values*."""
    return render_template(f"scripts/{name}.sh.j2", **layout.names(inventory, node), **values)


def render_template(name: str, **values: Any) -> str:
    """
    Give the template *name* (its path below templates/) with *values* in it.

    Raises:
        jinja2.TemplateError: it names a value that is not there, or one that went through no filter.
        ValueError: a value cannot stand where the template puts it.
    """
    return _engine().get_template(name).render(values)


def inputs_sha256(inventory: Inventory, recipe: Recipe) -> str:
    """
    Hash what the operator wrote and the nodes get, so that a newer tool can tell its own changes from his.

    Left out: how we log in, where files and secrets lie here, and names that only pick files.
    """
    wrote = {
        "inventory": {**_plain(inventory), "recipe": None, "source": None, "secrets_from": None},
        "recipe": {**_plain(recipe), "name": None, "source": None},
    }
    for node in wrote["inventory"]["nodes"]:
        del node["ssh"]
    return hashlib.sha256(shell.to_json(wrote).encode()).hexdigest()


def _plain(data: Any) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(data), default=str))
    return plain


def _node_files(inventory: Inventory, recipe: Recipe, node: Node) -> tuple[ReleaseFile, ...]:
    values = _values(inventory, recipe, node)
    names = ["run.sh", "node.env", "ray.args", "supervise.json", "ray_non_carry_over_env_vars.json"]
    if node.rank == 0:
        names.append("serve.args")
    files = [
        ReleaseFile(
            name, render_template(f"{name}.j2", **values).encode(), 0o755 if name == "run.sh" else 0o644
        )
        for name in names
    ]
    return tuple(sorted([*files, *_supervisor()], key=lambda file: file.path))


def _supervisor() -> Iterator[ReleaseFile]:
    """Its modules, and nothing else that may lie beside them, such as __pycache__."""
    folder = assets.templates()
    for path in (folder / "supervise.py", *folder.glob("supervisor/*.py")):
        yield ReleaseFile(path.relative_to(folder).as_posix(), path.read_bytes())


def _values(inventory: Inventory, recipe: Recipe, node: Node) -> Mapping[str, Any]:
    return {
        "inventory": inventory,
        "recipe": recipe,
        "node": node,
        "peers": inventory.others(node),
        "environment": environment.environment(inventory, recipe, node),
        "not_carried": environment.PER_NODE,
        "ray_arguments": arguments.ray_arguments(recipe, inventory, node),
        "serve_arguments": arguments.serve_arguments(recipe, inventory),
        "limits": {**dataclasses.asdict(recipe.supervision), "start_limit_s": recipe.start_limit_s},
        "folders": {
            "release": environment.RELEASE,
            "run": environment.RUN,
            "huggingface": environment.HUGGINGFACE,
            "cache": environment.CACHE,
        },
    }


def _manifest(inventory: Inventory, recipe: Recipe, files: Mapping[str, tuple[ReleaseFile, ...]]) -> bytes:
    content = {
        "schema": 1,
        "deployment": inventory.name,
        "inputs_sha256": inputs_sha256(inventory, recipe),
        "nodes": {
            name: {file.path: {"sha256": file.sha256, "bytes": len(file.content)} for file in own}
            for name, own in files.items()
        },
    }
    return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()


@lru_cache(maxsize=1)
def _engine() -> jinja2.Environment:
    return new_engine(assets.templates())


def new_engine(folder: Path) -> jinja2.Environment:
    """Give the engine for the templates in *folder*."""
    engine = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=jinja2.StrictUndefined,
        finalize=_filtered,
        autoescape=False,  # noqa: S701 - there is no HTML here; every value goes through a filter of ours
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    engine.filters = {"sh": _safe(shell.sh), "envfile": _safe(shell.envfile), "json": _safe(shell.to_json)}
    return engine


def _safe(filter_: Callable[[Any], str]) -> Callable[[Any], Safe]:
    def run(value: Any) -> Safe:
        if isinstance(value, jinja2.Undefined):
            str(value)  # raises UndefinedError, which names the value
        return Safe(filter_(value))

    return run


def _filtered(value: Any) -> Safe:
    if not isinstance(value, Safe):
        raise jinja2.TemplateRuntimeError(f"{value!r} went through none of the filters sh, envfile, json")
    return value
