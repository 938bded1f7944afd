"""
Jinja, shell, YAML and line-break characters in every string of inventory and recipe.

Each is either refused with exit code 3, or arrives on the node as the very text that was written.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.errors import Exit, FileError, ManyError
from orchestrator.planning.render import render_release
from tests.unit.rendering import content, docker_argv, environment_of, load_data

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from orchestrator.model.inventory import Inventory, Node
    from orchestrator.model.recipe import Recipe

# Whatever in here runs leaves a file called pwned.
HOSTILE = (
    "$(touch pwned)",
    "`touch pwned`",
    "'; touch pwned; '",
    '"; touch pwned; "',
    "a;touch pwned",
    "a\ntouch pwned",
    "a\r\ntouch pwned",
    "a\0b",
    "a\u2028touch pwned",
    "a && touch pwned #",
    "| touch pwned",
    "> pwned",
    "{{ 7 * 7 }}",
    "{% set x = 1 %}{{ x }}",
    "{# gone #}",
    "{{ ''.__class__.__mro__ }}",
    "${HOME}",
    "~root",
    "*",
    "a b",
    " a",
    "--privileged",
    "-v/:/host",
    "a,readonly,source=/etc",
    "!!python/object/apply:os.system [touch pwned]",
    "é\u202eüß",
    "%s%n",
    "",
)
PREFIXES = ("", "/data/", "~/")

INVENTORY: dict[str, Any] = {
    "name": "home",
    "recipe": "tiny",
    "head": {
        "name": "spark-1",
        "ssh": "op@spark-1:22",
        "fabric": {"interface": "enp1s0f1np1", "ip": "192.168.200.1", "hcas": ["rocep1s0f1", "roceP2p1s0f1"]},
        "paths": {"state": "~/state", "huggingface": "/data/hf", "cache": "~/cache"},
    },
    "workers": [
        {
            "name": "spark-2",
            "ssh": "spark-2",
            "fabric": {"interface": "enp1s0f0np0", "ip": "192.168.200.2", "hcas": ["rocep1s0f0"]},
        }
    ],
    "api": {"bind": "127.0.0.1", "port": 8000},
    "transport": "rdma",
    "gpus": "all",
    "paths": {"state": "~/.spark-deploy", "huggingface": "~/hf", "cache": "/var/cache/spark"},
    "secrets_from": {"command": ["pass", "show"]},
}
RECIPE: dict[str, Any] = {
    "model": "/models/tiny",
    "image": "example/vllm:1.0",
    "executor": "ray",
    "vllm": {
        "chat-template": "plain",
        "served-model-name": ["one", "two"],
        "hf-overrides": {"rope": {"type": "yarn"}},
    },
    "ray": {"log-style": "record", "resources": {"fast": "1"}},
    "env": {"GREETING": "hello"},
    "secrets": ["VLLM_API_KEY"],
}

Place = tuple[str | int, ...]


def strings(value: Any, place: Place = ()) -> Iterator[Place]:
    """Give the place of every string in a tree, and of every key that an operator may invent."""
    if isinstance(value, str):
        yield place
    elif isinstance(value, (dict, list)):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from strings(item, (*place, key))


def replaced(tree: dict[str, Any], place: Place, value: Any) -> dict[str, Any]:
    tree = copy.deepcopy(tree)
    around: Any = tree
    for key in place[:-1]:
        around = around[key]
    around[place[-1]] = value
    return tree


def renamed(tree: dict[str, Any], place: Place, name: str) -> dict[str, Any]:
    tree = copy.deepcopy(tree)
    around: Any = tree
    for key in place[:-1]:
        around = around[key]
    around[name] = around.pop(place[-1])
    return tree


def expected_argv(folder: Path, inventory: Inventory, recipe: Recipe, node: Node) -> list[str]:
    """Say in Python what run.sh says in shell, for the words that come from the operator's files."""
    id12 = render_release(inventory, recipe).id12

    def on_node(path: str) -> str:
        return str(folder / "home") + path[1:] if path.startswith("~/") else path

    release = folder / node.name / "releases" / id12
    return [
        f"spark-deploy.deployment={inventory.name}",
        f"spark-deploy.node={node.name}",
        f"spark-deploy.role={node.role}",
        f"spark-deploy.release={id12}",
        f"{release}/node.env",
        f"type=bind,source={release},target=/spark-deploy/release,readonly",
        f"type=bind,source={folder / node.name / 'run'},target=/spark-deploy/run",
        f"type=bind,source={on_node(node.paths.huggingface)},target=/spark-deploy/huggingface",
        f"type=bind,source={on_node(node.paths.cache)},target=/spark-deploy/cache",
        *([f"type=bind,source={recipe.model},target={recipe.model},readonly"] if recipe.local_model else []),
        recipe.image,
        "/spark-deploy/release/supervise.py",
    ]


OPERATORS = ("--label", "--env-file", "--mount")


def operators_words(argv: list[str]) -> list[str]:
    valued = [argv[at + 1] for at, option in enumerate(argv) if option in OPERATORS]
    return [*valued, *argv[-2:]]


def arrives(folder: Path, inventory: Inventory, recipe: Recipe, ran: set[str]) -> None:
    """Check that every file says what was loaded, and that run.sh (each one once: *ran*) passes it on as it is."""
    release = render_release(inventory, recipe)
    for node in inventory.nodes:
        settings = json.loads(content(release, node.name, "supervise.json"))
        environ = environment_of(release, node.name)
        script = content(release, node.name, "run.sh")
        if script not in ran:
            ran.add(script)
            _inspect, argv = docker_argv(folder, inventory, recipe, node)
            assert operators_words(argv) == expected_argv(folder, inventory, recipe, node)
        assert (settings["node"], settings["model"], settings["served_name"]) == (
            node.name,
            recipe.model,
            recipe.served_name,
        )
        assert {name: environ[name] for name in recipe.env} == dict(recipe.env)
        assert "--block" in content(release, node.name, "ray.args").splitlines()
    serve = content(release, inventory.head.name, "serve.args").splitlines()
    assert serve[0] == recipe.model
    for name, value in recipe.vllm.items():
        shown = [*value] if isinstance(value, list) else [f"--{name}={_word(value)}"]
        assert all(word in serve for word in shown)


def _word(value: Any) -> str:
    return (
        json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if isinstance(value, dict)
        else str(value)
    )


def attempt(
    folder: Path, inventory: dict[str, Any], recipe: dict[str, Any], ran: set[str] | None = None
) -> str:
    """Give "refused" or "inert"; anything else fails."""
    try:
        pair = load_data(folder, inventory, recipe)
    except FileError:  # exit code 3
        return "refused"
    except ManyError as many:
        return "refused" if many.exit_code == Exit.FILE else str(many)
    arrives(folder, *pair, set() if ran is None else ran)
    return "inert"


def attempts(
    folder: Path, files: Callable[[str], tuple[dict[str, Any], dict[str, Any]]], was: str
) -> set[str]:
    """Try every hostile text in one place; where a path was, also behind the beginning of one."""
    ran: set[str] = set()
    prefixes = PREFIXES if was.startswith(("/", "~")) else ("",)
    return {attempt(folder, *files(prefix + text), ran) for text in HOSTILE for prefix in prefixes}


def at(tree: Any, place: Place) -> Any:
    for key in place:
        tree = tree[key]
    return tree


@pytest.mark.parametrize("place", [*strings(INVENTORY)], ids=lambda place: ".".join(map(str, place)))
def test_hostile_text_in_an_inventory_is_refused_or_inert(place: Place, tmp_path: Path) -> None:
    """
    No string of an inventory can become a second command, option, mount or line.
    """
    outcomes = attempts(
        tmp_path, lambda text: (replaced(INVENTORY, place, text), RECIPE), at(INVENTORY, place)
    )

    assert outcomes <= {"refused", "inert"}
    assert not list(tmp_path.rglob("pwned*"))


@pytest.mark.parametrize("place", [*strings(RECIPE)], ids=lambda place: ".".join(map(str, place)))
def test_hostile_text_in_a_recipe_is_refused_or_inert(place: Place, tmp_path: Path) -> None:
    """
    No string of a recipe can become a second command, option, mount, variable or argument.
    """
    outcomes = attempts(tmp_path, lambda text: (INVENTORY, replaced(RECIPE, place, text)), at(RECIPE, place))

    assert outcomes <= {"refused", "inert"}
    assert not list(tmp_path.rglob("pwned*"))


@pytest.mark.parametrize(
    "place", [("vllm", "chat-template"), ("ray", "log-style"), ("env", "GREETING"), ("vllm",)], ids=str
)
@pytest.mark.parametrize("hostile", [text for text in HOSTILE if text not in ("a b", "~root")], ids=ascii)
def test_hostile_text_as_a_key_is_refused(place: Place, hostile: str, tmp_path: Path) -> None:
    """
    Names of options and variables are plain words.
    """
    assert attempt(tmp_path, INVENTORY, renamed(RECIPE, place, hostile)) == "refused"


@pytest.mark.parametrize("text", ["$(touch pwned)", "{{ 7 * 7 }}", "'a' b", "%s", "é", "--x"], ids=ascii)
def test_free_text_is_not_refused_needlessly(text: str, tmp_path: Path) -> None:
    """
    A chat template is full of such characters: they pass, unchanged.
    """
    recipe = replaced(replaced(RECIPE, ("vllm", "chat-template"), text), ("env", "GREETING"), text)

    assert attempt(tmp_path, INVENTORY, recipe) == "inert"
