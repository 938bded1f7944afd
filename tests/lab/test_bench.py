"""`bench` of a deployment whose API only the head itself reaches: through SSH, with the nodes watched."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .admin import AdminHome
from .lab import Lab
from .promises import CONTAINER

SMALL = ("--levels", "1,4", "--input-tokens", "64", "--output-tokens", "20", "--requests", "4")


@pytest.fixture
def serving(lab: Lab, inventory, spark_deploy) -> None:
    """25 tokens a second and request: a pause of this machine is then no twentieth of one."""
    inventory(recipe={"env": {"LAB_TPS": "25"}})
    assert spark_deploy("up").returncode == 0


def result_in(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "result.json").read_text())


def failed_gates(result: dict[str, Any]) -> set[str]:
    """Names of the gates for which a level is INVALID."""
    repeats = [repeat for level in result["levels"] for repeat in level["repeats"]]
    return {
        gate["name"] for repeat in repeats for gate in repeat["gates"] if not (gate["ok"] or gate["warns"])
    }


def test_a_deployment_on_the_loopback_is_measured_through_ssh(
    lab: Lab, serving: None, admin_home: AdminHome
) -> None:
    """
    One sweep serves all claims: it costs seconds.

    The requests went through the head's SSH connection and said so, every request came whole, the nodes were watched,
    and the result names what ran.
    """
    out = admin_home.home / "out"

    done = admin_home.spark_deploy("bench", *SMALL, "--out", out)

    result = result_in(out)
    assert failed_gates(result) <= {"client-lag"}, done.stderr  # two cores, and other tests beside it
    assert done.returncode == (9 if failed_gates(result) else 0), done.stdout + done.stderr
    target, deployment = result["target"], result["deployment"]
    assert (target["through"], target["added_ms"] is None) == ("spark-a", False)
    assert [level["level"]["concurrency"] for level in result["levels"]] == [1, 4]
    repeats = [repeat for level in result["levels"] for repeat in level["repeats"]]
    assert [(repeat["n_ok"], repeat["failures"], repeat["prompt_tokens"]) for repeat in repeats] == [
        (4, {}, 4 * 64)
    ] * 2
    assert [node["node"] for node in repeats[1]["nodes"]] == ["spark-a", "spark-b"]
    assert repeats[1]["server"]["generation_tokens"] == 4 * 20
    assert (deployment["model"], deployment["nodes"]) == ("stub", ["spark-a", "spark-b"])
    assert (deployment["transport"], deployment["tensor_parallel"]) == ("NET/IB", 2)
    assert deployment["release"] == lab.inspect("a", CONTAINER)["Config"]["Labels"]["spark-deploy.release"]
    assert [lab.processes(key, "nvidia-smi") for key in ("a", "b")] == [[], []]


def test_chat_prompts_have_the_wanted_length_with_their_template(
    serving: None, admin_home: AdminHome
) -> None:
    out = admin_home.home / "out"

    admin_home.spark_deploy("bench", *SMALL, "--chat", "--out", out)

    result = result_in(out)
    assert failed_gates(result) <= {"client-lag"}
    assert [level["repeats"][0]["prompt_tokens"] for level in result["levels"]] == [4 * 64] * 2
    assert result["fallbacks"] == []


def test_what_does_not_serve_is_not_measured(inventory, spark_deploy) -> None:
    inventory()

    done: subprocess.CompletedProcess[str] = spark_deploy("bench", *SMALL)

    assert (done.returncode, "spark-deploy up" in done.stderr) == (1, True), done.stderr
