"""What the nodes get: golden files, shell hygiene, and the promises of a release."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import jinja2
import pytest

from orchestrator import assets
from orchestrator.model.inventory import SecretSource
from orchestrator.planning.environment import PER_NODE, environment, health_check_threshold
from orchestrator.planning.render import inputs_sha256, new_engine, render_release, render_script
from tests.unit.rendering import CASES, content, docker_argv, environment_of, load_case

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# Golden are the files that inventory and recipe decide. The supervisor is a copy, and the manifest hashes it.
RENDERED = {
    "head": {
        "node.env",
        "ray.args",
        "ray_non_carry_over_env_vars.json",
        "run.sh",
        "serve.args",
        "supervise.json",
    },
    "worker": {"node.env", "ray.args", "ray_non_carry_over_env_vars.json", "run.sh", "supervise.json"},
}
SUPERVISOR = {
    "supervise.py",
    *(f"supervisor/{path.name}" for path in (assets.templates() / "supervisor").glob("*.py")),
}


@pytest.mark.parametrize("case", CASES)
def test_rendered_files_are_the_golden_ones(case: str, golden: Callable[[str, str], None]) -> None:
    """
    A change of a template shows as a diff of what runs on the nodes.
    """
    inventory, recipe = load_case(case)
    release = render_release(inventory, recipe)

    for node in inventory.nodes:
        for path in sorted(RENDERED[node.role]):
            golden(f"{case}/{node.name}/{path}", content(release, node.name, path))


@pytest.mark.parametrize("case", CASES)
def test_each_node_gets_its_files_and_no_others(case: str) -> None:
    """
    serve.args lies on the head alone: nothing on a worker can start an engine.
    """
    inventory, recipe = load_case(case)
    release = render_release(inventory, recipe)

    assert {node.name: {file.path for file in release.by_node[node.name]} for node in inventory.nodes} == {
        node.name: RENDERED[node.role] | SUPERVISOR | {"manifest.json"} for node in inventory.nodes
    }


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "checker", [["bash", "-n"], ["shellcheck", "--severity=style"]], ids=["bash", "shellcheck"]
)
def test_run_sh_is_clean_shell(case: str, checker: list[str], tmp_path: Path) -> None:
    """
    bash reads it and shellcheck has nothing to say; a missing shellcheck is a failure, not a skip.
    """
    inventory, recipe = load_case(case)
    release = render_release(inventory, recipe)
    for node in inventory.nodes:
        script = tmp_path / f"{node.name}.sh"
        script.write_text(content(release, node.name, "run.sh"))

        done = subprocess.run([*checker, script], capture_output=True, text=True, check=False)

        assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_manifest_names_every_file_of_every_node() -> None:
    """
    One changed byte on one node makes a new release of the pair.
    """
    inventory, recipe = load_case("crossed")
    release = render_release(inventory, recipe)

    assert json.loads(release.manifest.content)["nodes"] == {
        node: {
            file.path: {"sha256": hashlib.sha256(file.content).hexdigest(), "bytes": len(file.content)}
            for file in files
            if file.path != "manifest.json"
        }
        for node, files in release.by_node.items()
    }


def test_manifest_is_the_same_on_every_node() -> None:
    """
    So the id of a release, its hash, is the same everywhere.
    """
    inventory, recipe = load_case("three-nodes")
    release = render_release(inventory, recipe)

    assert {content(release, node.name, "manifest.json") for node in inventory.nodes} == {
        release.manifest.content.decode()
    }


def test_the_supervisor_is_the_shipped_one() -> None:
    """
    The same files on every node, so one test suite covers all.
    """
    inventory, recipe = load_case("example")
    release = render_release(inventory, recipe)

    shipped = {path: (assets.templates() / path).read_text(encoding="utf-8") for path in SUPERVISOR}

    assert [{path: content(release, node.name, path) for path in SUPERVISOR} for node in inventory.nodes] == [
        shipped,
        shipped,
    ]


def test_files_are_in_the_order_of_their_paths() -> None:
    """
    Not in the order in which a disk happens to list them: equal inputs give equal bytes on any machine.
    """
    inventory, recipe = load_case("example")
    paths = [file.path for file in render_release(inventory, recipe).by_node[inventory.head.name]]

    assert paths == [*sorted(set(paths) - {"manifest.json"}), "manifest.json"]


def test_bytes_do_not_depend_on_the_hash_seed_or_the_folder(tmp_path: Path) -> None:
    """
    `up` finds its own release again by its bytes: no order of a set gets into a file, nor where the tool was called.
    """
    inventory, recipe = load_case("crossed")
    program = "from tests.unit.rendering import load_case, render_release; print(render_release(*load_case('crossed')).id)"
    ids = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={
                **os.environ,
                "PYTHONHASHSEED": seed,
                "PYTHONPATH": os.pathsep.join(sys.path),
                "LC_ALL": "C",
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    ]

    assert ids == [render_release(inventory, recipe).id] * 2


def test_how_we_log_in_is_not_part_of_the_release() -> None:
    """
    Another SSH alias, another file name or secret source must not restart a serving pair.
    """
    inventory, recipe = load_case("crossed")
    nodes = tuple(replace(node, ssh=f"other-{node.ssh}") for node in inventory.nodes)
    moved = replace(
        inventory,
        nodes=nodes,
        source="elsewhere.yaml",
        recipe="another-name",
        secrets_from=SecretSource("file", file="secrets.env"),
    )

    assert render_release(moved, replace(recipe, name="x", source="y")) == render_release(inventory, recipe)


def test_inputs_hash_changes_with_the_recipe() -> None:
    """
    It tells an operator's change from a newer tool's.
    """
    inventory, recipe = load_case("example")

    assert inputs_sha256(inventory, recipe) != inputs_sha256(inventory, replace(recipe, offline=False))


def test_every_node_names_its_own_fabric_address_to_vllm_and_ray() -> None:
    """
    Lesson 3: Ray registered the head under an outside address that the worker could not reach.
    """
    inventory, recipe = load_case("crossed")
    release = render_release(inventory, recipe)

    for node in inventory.nodes:
        assert environment_of(release, node.name)["VLLM_HOST_IP"] == node.fabric.ip
        assert f"--node-ip-address={node.fabric.ip}\n" in content(release, node.name, "ray.args")


def test_every_socket_is_pinned_to_the_nodes_own_fabric_interface() -> None:
    """
    Lesson 4: traffic left the fabric. In a crossed pair each node has its own names.
    """
    inventory, recipe = load_case("crossed")
    release = render_release(inventory, recipe)
    names = (
        "NCCL_SOCKET_IFNAME",
        "GLOO_SOCKET_IFNAME",
        "TP_SOCKET_IFNAME",
        "UCX_NET_DEVICES",
        "OMPI_MCA_btl_tcp_if_include",
    )

    pinned = {
        node.name: {environment_of(release, node.name)[name] for name in names} for node in inventory.nodes
    }

    assert pinned == {"left": {"enp1s0f1np1"}, "spark-right": {"enp1s0f0np0"}}


@pytest.mark.parametrize("case", CASES)
def test_rays_memory_monitor_is_off_on_every_node(case: str) -> None:
    """
    Lesson 5: at 95 % it killed vLLM during graph capture; on unified memory that is no emergency.
    """
    inventory, recipe = load_case(case)
    release = render_release(inventory, recipe)

    assert {
        environment_of(release, node.name)["RAY_memory_monitor_refresh_ms"] for node in inventory.nodes
    } == {"0"}


@pytest.mark.parametrize("name", ["NCCL_NET", "NCCL_IB_GID_INDEX", "NCCL_NET_PLUGIN"])
def test_what_only_the_machine_can_know_is_unset(name: str) -> None:
    """
    GID indices drift over reboots, and the HPC-X plugin of NGC images has another net name.
    """
    inventory, recipe = load_case("example")

    assert name not in environment_of(render_release(inventory, recipe), "spark-1")


def test_every_per_node_variable_is_kept_from_being_carried_over() -> None:
    """
    vLLM's older Ray executor overwrites the worker's values with the head's.
    """
    inventory, recipe = load_case("crossed")
    left, right = (environment_of(render_release(inventory, recipe), node.name) for node in inventory.nodes)
    differing = {name for name in left if left[name] != right[name]}

    assert differing <= set(
        json.loads(content(render_release(inventory, recipe), "left", "ray_non_carry_over_env_vars.json"))
    )


def test_nccl_ib_gid_index_is_not_carried_over_either() -> None:
    """
    An image may set it; the head's index is wrong on the worker.
    """
    assert "NCCL_IB_GID_INDEX" in PER_NODE


@pytest.mark.parametrize(("peer_timeout_s", "misses"), [(8, 5), (60, 10), (90, 14)])
def test_ray_lets_go_later_than_the_supervisors(peer_timeout_s: float, misses: int) -> None:
    """
    One place decides: a miss takes 13 s, so Ray waits about twice the peer time-out, never less than by itself.
    """
    assert health_check_threshold(peer_timeout_s) == misses
    assert misses * 13 >= 2 * peer_timeout_s


def test_a_recipes_variable_replaces_the_default_once() -> None:
    """
    Docker takes the last of two equal names; a reader takes the first.
    """
    inventory, recipe = load_case("crossed")
    names = [v.name for group in environment(inventory, recipe, inventory.head) for v in group.variables]

    assert names.count("NCCL_DEBUG") == 1
    assert environment_of(render_release(inventory, recipe), "left")["NCCL_DEBUG"] == "TRACE"


def test_no_secret_is_in_any_file() -> None:
    """
    Not even its name is needed there: the supervisor reads secrets.env.
    """
    inventory, recipe = load_case("crossed")
    release = render_release(inventory, recipe)
    names = [
        file.path for files in release.by_node.values() for file in files if b"VLLM_API_KEY" in file.content
    ]

    assert set(names) <= {"supervisor/questions.py"}


@pytest.mark.parametrize("case", CASES)
def test_docker_gets_exactly_these_arguments(
    case: str, tmp_path: Path, golden: Callable[[str, str], None]
) -> None:
    """
    run.sh is run, with a docker that writes down what it got: quoting is proved, not read.
    """
    inventory, recipe = load_case(case)
    release = render_release(inventory, recipe)
    for node in inventory.nodes:
        _inspect, argv = docker_argv(tmp_path, inventory, recipe, node)

        shown = "".join(f"{word}\n" for word in argv)
        shown = shown.replace(release.id12, "<id12>").replace(str(tmp_path / "home"), "<home>")
        golden(f"{case}/{node.name}/docker-run.argv", shown.replace(str(tmp_path), "<folder>"))


def run_again(folder: Path) -> tuple[Path, dict[str, str]]:
    """Give run.sh as it lies on the example's head, and what it needs to be run by hand with the `docker` in bin/."""
    inventory, recipe = load_case("example")
    docker_argv(folder, inventory, recipe, inventory.head)
    script = folder / "spark-1" / "releases" / render_release(inventory, recipe).id12 / "run.sh"
    calls = str(folder / "again")
    return script, {"PATH": f"{folder}/bin:{os.environ['PATH']}", "HOME": "/nowhere", "CALLS": calls}


def test_run_sh_leaves_its_running_container_alone(tmp_path: Path) -> None:
    """
    Run again by hand it does nothing: the container of this release runs.
    """
    script, environ = run_again(tmp_path)
    docker = f'#!/bin/bash\necho "$1" >> "$CALLS"\necho "true {script.parent.name}"\n'
    (tmp_path / "bin" / "docker").write_text(docker)

    subprocess.run(["bash", script], env=environ, check=True)

    assert (tmp_path / "again").read_text() == "container\n"


def test_run_sh_without_secrets_says_who_writes_them(tmp_path: Path) -> None:
    """
    Started by hand before any `up`, the supervisor would wait for a token for ever.
    """
    script, environ = run_again(tmp_path)
    secrets = tmp_path / "spark-1" / "run" / "secrets.env"
    secrets.unlink()

    done = subprocess.run(["bash", script], env=environ, check=False, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (1, f"{secrets} is missing: `spark-deploy up` writes it\n")


def engine(tmp_path: Path, template: str, **values: object) -> str:
    """Render *template* with the engine of the shipped ones."""
    (tmp_path / "t.j2").write_text(template)
    return new_engine(tmp_path).get_template("t.j2").render(values)


@pytest.mark.parametrize(
    "template",
    ["{{ x }}", "{{ x | sh ~ x }}", "{{ 'constant' }}", "{{ 7 * 7 }}", "{% if x %}{{ x }}{% endif %}"],
)
def test_a_value_that_went_through_no_filter_is_an_error(template: str, tmp_path: Path) -> None:
    """
    A forgotten filter is found by the first render, not by an attacker.
    """
    with pytest.raises(jinja2.TemplateError, match="went through none of the filters sh, envfile, json"):
        engine(tmp_path, template, x="value")


@pytest.mark.parametrize(
    "template",
    ["{{ y | sh }}", "{{ y | json }}", "{{ y | envfile }}", "{{ x.z | sh }}", "{% for i in y %}{% endfor %}"],
)
def test_a_value_that_is_not_there_is_an_error(template: str, tmp_path: Path) -> None:
    """
    A misspelled name must not become an empty word.
    """
    with pytest.raises(jinja2.UndefinedError, match=r"'y' is undefined|no attribute 'z'"):
        engine(tmp_path, template, x="value")


@pytest.mark.parametrize("name", ["upper", "safe", "default", "join", "e"])
def test_there_are_three_filters_and_no_others(name: str, tmp_path: Path) -> None:
    """
    Jinja's own filters would be ways around ours.
    """
    with pytest.raises(jinja2.TemplateAssertionError, match=f"No filter named '{name}'"):
        engine(tmp_path, f"{{{{ x | {name} }}}}", x="value")


def test_scripts_of_other_parts_come_from_the_same_engine() -> None:
    """
    lock.sh and its like are held to the same rules.
    """
    inventory, _recipe = load_case("example")

    assert "releases/a b'" in render_script("start", inventory, inventory.head, release="a b")
