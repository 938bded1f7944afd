"""Starts that fail: one cause, its node, both nodes' evidence on the laptop, and the nodes as before."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from .promises import NOTHING_LEFT, assert_as_before, assert_serves, errors

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from .admin import AdminHome
    from .lab import Lab


def newest_run(home: AdminHome) -> Path:
    return max((home.home / ".local/state/spark-deploy/runs").iterdir())


@pytest.fixture
def no_nvidia_runtime_on_b(lab: Lab) -> Iterator[None]:
    """Docker looks for the toolkit's hook when it starts."""
    hook = "/usr/bin/nvidia-container-runtime-hook"
    lab.run("b", "mv", hook, f"{hook}.off")
    lab.restart_engine("b", "TERM", down_s=0)
    yield
    lab.run("b", "mv", f"{hook}.off", hook)
    lab.restart_engine("b", "TERM", down_s=0)


def test_a_worker_that_never_joins_is_named_with_its_own_log_lines(lab, inventory, spark_deploy):
    """
    `ray start` of a worker that cannot reach the head blocks for ever, and the head's log knows nothing of it.
    """
    inventory(
        recipe={"env": {"LAB_RAY_REFUSE_JOIN_ON": "192.168.200.2"}, "supervision": {"join_limit_s": 12}}
    )

    done = spark_deploy("up")

    assert done.returncode == 1
    assert errors(done).startswith(
        "Error: spark-b (192.168.200.2) did not join Ray in 12 s\n  at     spark-b\n  found  the last lines of each node\n"
    )
    assert "spark-b: [ray] " in errors(done)
    assert "Failed to connect to GCS at address 192.168.200.1:6379 within 5 seconds." in errors(done)
    assert_as_before(lab)


def test_vllm_that_exits_while_loading_is_not_started_again(lab, inventory, spark_deploy, admin_home):
    """
    A load takes minutes, and a crash loop leaks unified memory: the first failure of a new release is the last.
    """
    inventory(recipe={"env": {"LAB_VLLM_EXIT_AT": "weights"}})

    done = spark_deploy("up")
    log = (newest_run(admin_home) / "evidence/spark-a/container.log").read_text()

    assert done.returncode == 1
    assert re.fullmatch(
        r"Error: vllm exited with 1: safetensors_rust.SafetensorError: Error while deserializing header: incomplete "
        r"metadata, file not fully covered\n"
        r"  cause  a weight file of the model is broken.*\n"
        r"  at     spark-a\n"
        r"  found  spark-a: \[vllm\] .*safetensors_rust.SafetensorError: .*\n"
        r"  hint   download the model again on every node.*\n" + NOTHING_LEFT,
        errors(done),
    )
    assert len(re.findall(r"\[supervise\] \S+ starting-engine", log)) == 1
    assert_as_before(lab)


def test_a_failure_keeps_the_evidence_of_both_nodes_on_the_laptop(lab, inventory, spark_deploy, admin_home):
    """
    The containers are removed, so that nothing holds memory; their words must not go with them.
    """
    inventory(recipe={"env": {"LAB_VLLM_EXIT_AT": "graphs"}})

    done = spark_deploy("up")
    evidence = newest_run(admin_home) / "evidence"
    kept = {str(path.relative_to(evidence)) for path in evidence.rglob("*") if path.is_file()}

    assert re.fullmatch(
        r"Error: vllm exited with 1: torch.OutOfMemoryError: CUDA out of memory\. .*\n"
        r"  cause  the GPU's memory ran out\n"
        r"  at     spark-a\n"
        r"  found  spark-a: \[vllm\] \(RayWorkerProc pid=\d+.*\) ERROR torch.OutOfMemoryError: CUDA out of memory\. .*\n"
        r"  hint   lower gpu-memory-utilization or max-num-seqs\n" + NOTHING_LEFT,
        errors(done),
    )
    assert f"evidence: {evidence}" in done.stderr
    for node in ("spark-a", "spark-b"):
        assert {f"{node}/{name}" for name in ("container.log", "state.json", "inspect.json")} <= kept
        assert f"{node}/supervisor/1/ray.log" in kept
    assert json.loads((evidence / "spark-a/state.json").read_text())["phase"] == "gave-up"
    assert "evidence/spark-b/container.log" in spark_deploy("runs", "show", "last").stdout
    assert_as_before(lab)


@pytest.mark.parametrize(
    ("missing", "cause"),
    [
        (
            "transformers",
            "the image is too old for this model: its Transformers does not know the architecture qwen3_5_moe",
        ),
        (
            "vllm",
            "this vLLM has no support for the model's architecture 'Qwen3_5MoeForConditionalGeneration'",
        ),
    ],
)
def test_an_image_too_old_for_the_model_is_named_as_such(lab, inventory, spark_deploy, missing, cause):
    """
    Lessons 1 and 6: the pydantic traceback hides the one line that says what to do.
    """
    inventory(recipe={"env": {"LAB_VLLM_ARCH_ERROR": missing}})

    done = spark_deploy("up")

    assert done.returncode == 1
    assert f"\n  cause  {cause}\n" in done.stderr
    assert "\n  hint   take an image with a" in done.stderr
    assert_as_before(lab)


def test_ray_under_another_address_than_the_fabric_s_is_named(lab, inventory, spark_deploy):
    """
    Lesson 3: the head registered as 10.1.230.180, and the worker could not reach that.
    """
    inventory(recipe={"env": {"LAB_RAY_IP": "10.1.230.180"}})

    done = spark_deploy("up")

    assert done.returncode == 1
    assert errors(done).startswith(
        "Error: Ray registered spark-a under 10.1.230.180, wanted 192.168.200.1\n  at     spark-a\n"
    )
    assert_as_before(lab)


def test_ray_s_memory_monitor_is_off(lab, inventory, spark_deploy):
    """
    Lesson 5: at 95 % it killed vLLM in the middle of graph capture. The stub's does so too, unless it is switched off.
    """
    inventory(recipe={"env": {"LAB_RAY_MEMORY_KILL": "1"}})

    done = spark_deploy("up")

    assert done.returncode == 0
    assert_serves(lab)


def test_nccl_on_tcp_stops_the_start_before_the_weights_are_loaded(lab, inventory, spark_deploy):
    """
    Lesson 4: a pair that talks over sockets serves at a tenth of the speed, and nobody is told.
    """
    inventory(recipe={"env": {"LAB_NET": "Socket", "LAB_VLLM_START": "5"}})

    done = spark_deploy("up")

    assert done.returncode == 1
    assert errors(done).startswith(
        "Error: transport is NET/Socket (TCP), wanted NET/IB (RDMA): see /dev/infiniband, memlock, hcas\n  at     spark-a\n"
        "  found  the last lines of each node\n"
    )
    assert "weights 7/7" not in done.stderr
    assert_as_before(lab)


def test_nccl_on_tcp_serves_where_the_inventory_says_so(lab, inventory, spark_deploy):
    """
    `transport: tcp` is an operator's decision; it is only told.
    """
    inventory(transport="tcp", recipe={"env": {"LAB_NET": "Socket"}})

    done = spark_deploy("up")

    assert done.returncode == 0
    assert "WARNING    spark-a: transport NET/Socket: TCP, far slower than RDMA" in done.stderr
    assert_serves(lab)


def test_nccl_that_hangs_ends_at_the_start_limit_with_both_nodes_last_lines(lab, inventory, spark_deploy):
    """
    Lesson 2: a bootstrap over a wrong interface waits for ever and says nothing.
    """
    inventory(recipe={"env": {"LAB_NCCL_HANG": "1"}, "start_limit_s": 15})

    done = spark_deploy("up")

    assert done.returncode == 1
    assert errors(done).startswith(
        "Error: not ready in 15 s, last seen: ranks connecting\n  at     spark-a\n  found  the last lines of each node\n"
    )
    assert re.search(
        r"spark-a: \[vllm\] .*NCCL INFO Bootstrap: Using enp1s0f1np1:192.168.200.2<0>", done.stderr
    )
    assert "spark-b: [supervise] " in errors(done)
    assert_as_before(lab)


@pytest.mark.usefixtures("no_nvidia_runtime_on_b")
def test_docker_without_the_nvidia_runtime_is_named(lab, inventory, spark_deploy):
    """
    A fresh node: Docker's own words name no package. The head's container, which did start, is gone again.
    """
    inventory()

    done = spark_deploy("up")

    # Docker 20.10 and 28 differ in a full stop
    assert (done.returncode, errors(done).replace("[[gpu]].\n", "[[gpu]]\n")) == (
        1,
        "Error: the script failed\n"
        "  cause  Docker cannot hand the GPU to a container: it has no NVIDIA runtime\n"
        f"  at     spark-b: start release {started(done)}\n"
        '  found  spark-b: exit code 125: docker: Error response from daemon: could not select device driver "" '
        "with capabilities: [[gpu]]\n"
        "  hint   on the node: sudo apt install nvidia-container-toolkit, sudo systemctl restart docker; or `gpus: cdi`\n"
        + NOTHING_LEFT,
    )
    assert_as_before(lab)


def started(done: subprocess.CompletedProcess[str]) -> str:
    """The id12 of the release that was to be started."""
    return re.findall(r"  step       start: start release (\w{12})\n", done.stderr)[0]


def test_an_option_that_this_vllm_does_not_know_is_named(lab, inventory, spark_deploy):
    """
    Options go to vLLM unchecked, as every version has its own; it refuses within a second.
    """
    inventory(recipe={"vllm": {"no-such-option": 1}})

    done = spark_deploy("up")

    assert done.returncode == 1
    assert "unrecognized arguments: --no-such-option=1" in errors(done)
    assert "\n  hint   correct `vllm:` in the recipe" in errors(done)
    assert_as_before(lab)
