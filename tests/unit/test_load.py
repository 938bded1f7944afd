"""Good inventories and recipes: what the model says of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator import assets
from orchestrator.errors import Exit, FileError, UsageError
from orchestrator.load.find import find_inventory, find_recipe
from orchestrator.load.inventory import load_inventory
from orchestrator.load.recipe import load_recipe
from orchestrator.model.inventory import Inventory, Paths, SecretSource
from orchestrator.model.recipe import Recipe, Supervision
from orchestrator.planning.advice import inventory_warnings, recipe_warnings
from orchestrator.shell import NodePath
from tests.unit import broken
from tests.unit.rendering import load_case


@pytest.fixture(autouse=True)
def _beside_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def inventory(*edits: tuple[str, str]) -> Inventory:
    Path("home.yaml").write_text(broken.broken(broken.INVENTORY, edits), encoding="utf-8")
    return load_inventory(Path("home.yaml"))


def recipe(*edits: tuple[str, str]) -> Recipe:
    Path("tiny.yaml").write_text(broken.broken(broken.RECIPE, edits), encoding="utf-8")
    return load_recipe(Path("tiny.yaml"))


SHIPPED = [path for path in assets.shipped_inventories().rglob("*.yaml") if path.parent.name != "bench"]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_every_shipped_file_loads(path: Path) -> None:
    """
    What we ship is documentation; it has to be true.
    """
    load = load_recipe if path.parent.name == "recipes" else load_inventory

    assert load(path).source == str(path)


def test_the_example_names_every_key_that_there_is() -> None:
    """
    The commented example is the reference that people read.
    """
    from orchestrator.load.schema import (
        ApiSchema,
        FabricSchema,
        InventorySchema,
        NodeSchema,
        PathsSchema,
        PortsSchema,
    )

    text = (assets.shipped_inventories() / "example.yaml").read_text(encoding="utf-8")
    schemas = (InventorySchema, NodeSchema, FabricSchema, ApiSchema, PathsSchema, PortsSchema)

    assert [key for schema in schemas for key in schema.model_fields if f"{key}:" not in text] == []


def test_the_reference_recipe_names_every_key_that_there_is() -> None:
    """
    The same for recipes.
    """
    from orchestrator.load.schema import RecipeSchema, SupervisionSchema

    text = (assets.shipped_inventories() / "recipes" / "qwen3.5-122b-a10b-fp8.yaml").read_text(
        encoding="utf-8"
    )

    assert [
        key
        for schema in (RecipeSchema, SupervisionSchema)
        for key in schema.model_fields
        if f"{key}:" not in text
    ] == []


def test_defaults_of_the_schema_are_those_of_the_model() -> None:
    """
    A default that is written down in two places is wrong in one of them some day.
    """
    loaded = inventory(("recipe: tiny\n", ""), ("transport: rdma\n", ""), ("  port: 8000\n", ""))
    given = Inventory(loaded.name, "", loaded.nodes, loaded.api, source=loaded.source)

    assert loaded == given


def test_a_node_is_called_like_its_host() -> None:
    """
    The host part of ssh, lower-cased.
    """
    loaded = inventory(("  ssh: spark-1", "  ssh: admin@Spark-One:2222"))

    assert (loaded.head.name, loaded.head.ssh) == ("spark-one", "admin@Spark-One:2222")


def test_the_rank_is_the_place_in_the_file() -> None:
    """
    The head is rank 0.
    """
    trio, _recipe = load_case("three-nodes")

    assert [(node.name, node.rank, node.role) for node in trio.nodes] == [
        ("trio-1", 0, "head"),
        ("trio-2", 1, "worker"),
        ("trio-3", 2, "worker"),
    ]


def test_a_nodes_own_paths_win() -> None:
    """
    Key by key: what it does not name is the pair's, then the default.
    """
    loaded = inventory(
        ("  ssh: spark-1", "  ssh: spark-1\n  paths: {huggingface: /data/hf/}"),
        ("transport: rdma", "paths: {huggingface: /srv/hf, state: /srv/state}"),
    )

    assert [node.paths for node in loaded.nodes] == [
        Paths(NodePath("/srv/state"), NodePath("/data/hf"), Paths().cache),
        Paths(NodePath("/srv/state"), NodePath("/srv/hf"), Paths().cache),
    ]


def test_the_prefix_is_24_unless_written() -> None:
    """
    NVIDIA's guides use /24; NemoClaw's rails are /30.
    """
    assert str(inventory().head.fabric.address) == "192.168.200.1/24"


def test_anchors_and_merges_work() -> None:
    """
    Two nodes mostly have one fabric.
    """
    loaded = inventory(
        (
            "  fabric:\n    interface: enp1s0f1np1\n    ip: 192.168.200.1",
            "  fabric: &port\n    interface: enp1s0f1np1\n    ip: 192.168.200.1",
        ),
        (
            "  fabric:\n    interface: enp1s0f1np1\n    ip: 192.168.200.2\n    hcas: [rocep1s0f1, roceP2p1s0f1]",
            "  fabric: {<<: *port, ip: 192.168.200.2}",
        ),
    )

    assert [(node.fabric.ip, node.fabric.hcas) for node in loaded.nodes] == [
        ("192.168.200.1", ("rocep1s0f1", "roceP2p1s0f1")),
        ("192.168.200.2", ("rocep1s0f1", "roceP2p1s0f1")),
    ]


@pytest.mark.parametrize(
    ("written", "source"),
    [
        ("environment", SecretSource()),
        ("{file: secrets.env}", SecretSource("file", file="secrets.env")),
        ("{file: /etc/secrets.env}", SecretSource("file", file="/etc/secrets.env")),
        ("{command: [pass, show, x]}", SecretSource("command", command=("pass", "show", "x"))),
    ],
)
def test_secrets_come_from_one_of_three_places(written: str, source: SecretSource) -> None:
    """
    A file is relative to the inventory.
    """
    assert inventory(("transport: rdma", f"secrets_from: {written}")).secrets_from == source


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("gpu-memory-utilization: 0.80", "0.80"),
        ("gpu-memory-utilization: 0.8", 0.8),
        ("max-model-len: 512", 512),
        ("max-model-len: 64k", "64k"),
        ("revision: 1.10", "1.10"),
        ("revision: 12e5678", "12e5678"),
        ("revision: 0123456", "0123456"),
        ("revision: 2026-11-30", "2026-11-30"),
        ("chat-template: 22:22", "22:22"),
        ("enforce-eager: true", True),
        ("served-model-name: [a, b]", ["a", "b"]),
        ("hf-overrides: {a: {b: 0.10}}", {"a": {"b": 0.1}}),
    ],
)
def test_what_is_written_is_what_vllm_gets(written: str, value: Any) -> None:
    """
    YAML 1.1 would make a number of 22:22, a date of a revision, and 0.8 of 0.80.
    """
    (found,) = recipe(("  max-model-len: 512", f"  {written}")).vllm.values()

    assert (found, type(found)) == (value, type(value))


def test_underscores_in_options_are_dashes() -> None:
    """
    vLLM takes both; serve.args has one.
    """
    loaded = recipe(("  max-model-len: 512", "  max_model_len: 512\n  compilation_config.cache_dir: /x"))

    assert list(loaded.vllm) == ["max-model-len", "compilation-config.cache_dir"]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("true", "1"),
        ("false", "0"),
        ("1.10", "1.10"),
        ("8", "8"),
        ("0x10", "0x10"),
        ("a=b c", "a=b c"),
        ('""', ""),
    ],
)
def test_variables_are_text(written: str, value: str) -> None:
    """
    Python reads variables with int(); numbers stay as written.
    """
    assert recipe(("  OMP_NUM_THREADS: 4", f"  NAME: {written}")).env == {"NAME": value}


def test_a_recipe_is_called_like_its_file() -> None:
    """
    That is the name that `--recipe` takes.
    """
    assert recipe().name == "tiny"


def test_a_recipe_needs_a_model_and_an_image() -> None:
    """
    All else has a default: vLLM's own, or ours.
    """
    Path("least.yaml").write_text("model: org/tiny\nimage: example/vllm@sha256:" + 64 * "0")

    least = load_recipe(Path("least.yaml"))

    assert least == Recipe("least", "org/tiny", "example/vllm@sha256:" + 64 * "0", {}, source="least.yaml")


def test_a_written_default_makes_no_other_release() -> None:
    """
    60 and 60.0 seconds are one setting.
    """
    written = recipe(("offline: true", "supervision: {peer_timeout_s: 60, healthy_s: 3600.0}"))

    assert repr(written.supervision) == repr(Supervision())


def test_every_warning_has_its_cause() -> None:
    """
    Allowed, but said.
    """
    loaded = recipe(
        (
            "  max-model-len: 512",
            "  gpu-memory-utilization: 0.95\n  trust-remote-code: true\n  disable-log-stats: true",
        ),
        ("  OMP_NUM_THREADS: 4", "  VLLM_SERVER_DEV_MODE: 1"),
    )

    assert [warning.split(":")[0].split(" is ")[0] for warning in recipe_warnings(loaded)] == [
        "image example/vllm",
        "gpu-memory-utilization 0.95",
        "trust-remote-code runs the checkpoint's own code on every node",
        "disable-log-stats takes away the counters by which a hang",
        "VLLM_SERVER_DEV_MODE opens paths that pause the engine or change its weights",
    ]


def test_a_pinned_recipe_on_loopback_warns_of_nothing() -> None:
    """
    Warnings that are always there are read by nobody.
    """
    pinned = recipe(("example/vllm:1.0", "example/vllm@sha256:" + 64 * "a"))

    assert [*recipe_warnings(pinned), *inventory_warnings(inventory(), pinned)] == []


@pytest.mark.parametrize(
    ("secrets", "warning"), [("[]", "answers everybody"), ("[VLLM_API_KEY]", "guards /v1 only")]
)
def test_an_api_on_the_network_is_said(secrets: str, warning: str) -> None:
    """
    With a key, too: it does not guard every path.
    """
    opened = inventory(("bind: 127.0.0.1", "bind: 0.0.0.0"))
    served = recipe(("secrets: [VLLM_API_KEY]", f"secrets: {secrets}"))

    assert warning in "".join(inventory_warnings(opened, served))


def test_a_port_that_ray_may_take_is_said() -> None:
    """
    It works nine times out of ten.
    """
    pinned = recipe(("example/vllm:1.0", "example/vllm@sha256:" + 64 * "a"))

    assert list(inventory_warnings(inventory(("port: 8000", "port: 18000")), pinned)) == [
        "api.port 18000 is one that Ray may take for a worker (10001 to 19999)",
    ]


def touch(*paths: str) -> None:
    for path in paths:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).touch()


@pytest.mark.parametrize(
    ("explicit", "environ", "found"),
    [
        ("mine.yaml", {"SPARK_DEPLOY_INVENTORY": "theirs.yaml"}, "mine.yaml"),
        (None, {"SPARK_DEPLOY_INVENTORY": "theirs.yaml"}, "theirs.yaml"),
        (None, {}, "spark-deploy.yaml"),
    ],
)
def test_the_inventory_is_the_first_of_four(
    explicit: str | None, environ: dict[str, str], found: str
) -> None:
    """
    -i, the variable, ./spark-deploy.yaml, ./inventories/default.yaml.
    """
    touch("mine.yaml", "theirs.yaml", "spark-deploy.yaml", "inventories/default.yaml")

    assert find_inventory(explicit, environ, Path()) == Path(found)


def test_the_last_place_is_the_default_inventory() -> None:
    """
    A team's repository may keep it there.
    """
    touch("inventories/default.yaml")

    assert find_inventory(None, {}, Path()) == Path("inventories/default.yaml")


def test_without_an_inventory_the_places_are_named() -> None:
    """
    And the example that can be copied.
    """
    with pytest.raises(UsageError) as caught:
        find_inventory(None, {}, Path())

    assert (caught.value.exit_code, caught.value.found) == (
        Exit.USAGE,
        "neither --inventory, $SPARK_DEPLOY_INVENTORY, ./spark-deploy.yaml nor ./inventories/default.yaml",
    )


def test_a_misspelled_inventory_names_its_neighbour() -> None:
    """
    -i inventories/hoem.yaml.
    """
    touch("inventories/home.yaml")

    with pytest.raises(FileError) as caught:
        find_inventory("inventories/hoem.yaml", {}, Path())

    assert caught.value.hint == "did you mean inventories/home.yaml?"


def test_recipes_beside_the_inventory_come_first() -> None:
    """
    A recipe of one's own may have the name of a shipped one.
    """
    touch("inventories/recipes/lab-stub.yaml")

    assert find_recipe("lab-stub", Path("inventories/home.yaml")) == Path("inventories/recipes/lab-stub.yaml")


def test_shipped_recipes_come_next() -> None:
    """
    A bare inventory serves the reference deployment.
    """
    shipped = assets.shipped_inventories() / "recipes" / "qwen3.5-122b-a10b-fp8.yaml"

    assert find_recipe("qwen3.5-122b-a10b-fp8", Path("home.yaml")) == shipped


def test_an_unknown_recipe_names_the_nearest() -> None:
    """
    And where it was looked for.
    """
    with pytest.raises(FileError) as caught:
        find_recipe("qwen3.5-122b-fp8", Path("home.yaml"))

    assert caught.value.hint == "did you mean qwen3.5-122b-a10b-fp8?"


@pytest.mark.parametrize(("relative_to", "found"), [(None, "inventories/own/r.yaml"), (Path(), "own/r.yaml")])
def test_a_recipes_path_is_relative_to_who_wrote_it(relative_to: Path | None, found: str) -> None:
    """
    In the inventory to the inventory, on the command line to the current folder.
    """
    touch("inventories/own/r.yaml", "own/r.yaml")

    assert find_recipe("own/r.yaml", Path("inventories/home.yaml"), relative_to) == Path(found)


def test_the_shipped_lab_inventory_describes_the_lab() -> None:
    """
    Names, logins and fabric of tests/lab, for who wants to try the tool by hand.
    """
    from tests.lab.files import MODEL
    from tests.lab.topology import FABRIC, HCAS, Topology

    lab = load_inventory(assets.shipped_inventories() / "lab.yaml")
    stub = load_recipe(assets.shipped_inventories() / "recipes" / "lab-stub.yaml")

    assert [
        (node.name, node.ssh, node.fabric.ip, node.fabric.interface, node.fabric.hcas) for node in lab.nodes
    ] == [
        (machine.name, f"op@{machine.address}", machine.fabric_ip, FABRIC, tuple(HCAS))
        for machine in Topology().nodes
    ]
    assert stub.model == MODEL


def test_the_shipped_lab_recipe_is_the_one_that_is_tested() -> None:
    """
    What vLLM's CPU build needs is written down twice; once would be once too few for a reader.
    """
    from tests.lab.inventory import REAL_RECIPE

    tiny = load_recipe(assets.shipped_inventories() / "recipes" / "lab-tiny.yaml")
    size = {"64M": 67108864}

    assert (tiny.env, tiny.ray, tiny.start_limit_s) == tuple(
        REAL_RECIPE[key] for key in ("env", "ray", "start_limit_s")
    )
    assert tiny.vllm == {name: size.get(str(value), value) for name, value in REAL_RECIPE["vllm"].items()}
