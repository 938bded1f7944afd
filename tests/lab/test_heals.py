"""After a first ready, the pair heals itself without the laptop: both ranks together, nothing orphaned, attempts counted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from .promises import CONTAINER, OP_STATE, assert_serves, containers
from .shell import LabError, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .lab import Lab

NODES = ("a", "b")
HEALED_WITHIN_S = 90  # two cores, and other tests beside it; the stub engine itself starts in 2 s


def state(lab: Lab, key: str) -> dict[str, Any]:
    """state.json of a node; {} while there is none or the power is off."""
    try:
        path = lab.path(key, f"{OP_STATE}/lab/spark-{key}/run/state.json")
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


@pytest.fixture
def pair(lab: Lab, inventory: Callable[..., Path], spark_deploy: Callable[..., Any]) -> Lab:
    """A pair that serves, and has been told nothing since."""
    inventory()
    done = spark_deploy("up")
    assert done.returncode == 0, done.stderr
    return lab


def heals(lab: Lab, fault: Callable[[], None]) -> None:
    """Do *fault*, wait until the pair serves again in a new session, and check what is left."""
    before = {key: state(lab, key)["session"] for key in NODES}
    engines = {key: set(lab.processes(key, "ray::|VLLM::|vllm serve|raylet|gcs_server")) for key in NODES}
    fault()

    def serves_again() -> bool:
        now = {key: state(lab, key) for key in NODES}
        sessions = {one.get("session") for one in now.values()}
        return {one.get("phase") for one in now.values()} == {"serving"} and not sessions & set(
            before.values()
        )

    try:
        wait_for("both serving again", serves_again, timeout_s=HEALED_WITHIN_S)
    except LabError as late:
        logs = [lab.try_run(key, "docker", "logs", "--tail", "30", CONTAINER).stdout for key in NODES]
        raise AssertionError(
            "\n".join([str(late), *(str(state(lab, key)) for key in NODES), *logs])
        ) from late

    for key in NODES:
        assert not engines[key] & set(lab.processes(key)), f"processes of the old session live on {key}"
        assert zombies(lab, key) == []
        assert len(lab.containers(key)) == 1
    assert state(lab, "a")["attempts"] == 1
    assert_serves(lab)


def zombies(lab: Lab, key: str) -> list[str]:
    listed = lab.docker(key, "exec", CONTAINER, "ps", "-eo", "stat,args")
    return [line for line in listed.splitlines() if line.startswith("Z")]


@pytest.mark.parametrize("process", ["vllm serve", "VLLM::EngineCore"])
def test_a_killed_engine_process_on_the_head(pair: Lab, process: str) -> None:
    """An engine that dies exits with 0 (vLLM 0.32): every exit is a failure."""
    heals(pair, lambda: pair.kill("a", process))


@pytest.mark.parametrize("key", NODES)
def test_a_killed_ray_on_either_node(pair: Lab, key: str) -> None:
    """The worker must not wait for Ray to notice: it would take a minute."""
    heals(pair, lambda: pair.kill(key, "raylet"))


def test_a_killed_rank_on_the_worker(pair: Lab) -> None:
    heals(pair, lambda: pair.kill("b", "ray::RayWorkerProc"))


@pytest.mark.parametrize("key", NODES)
def test_a_killed_init_of_the_container_on_either_node(pair: Lab, key: str) -> None:
    """Docker starts the container again; its supervisor has a new incarnation, and both ranks follow."""
    _, _, init = containers(pair)[key]

    heals(pair, lambda: pair.run(key, "kill", "-KILL", str(init)))


@pytest.mark.parametrize("number", ["TERM", "KILL"])
@pytest.mark.parametrize("key", NODES)
def test_a_dockerd_that_ends_and_comes_back_on_either_node(pair: Lab, key: str, number: str) -> None:
    """After a crash of dockerd `unless-stopped` would keep the container down for ever; `always` does not."""
    heals(pair, lambda: pair.restart_engine(key, number))


@pytest.mark.parametrize("key", NODES)
def test_a_node_that_loses_its_power_and_boots_again(pair: Lab, key: str) -> None:
    """The other node waits, which costs it no attempt, and the one that boots counts anew; then both start together."""

    def fault() -> None:
        pair.power_cut(key)
        pair.boot(key)

    heals(pair, lambda: pair.kill("b", "raylet"))  # so that there is an attempt to count from
    heals(pair, fault)
