"""The stub engine behaves as the real one where the supervisor and the diagnosis look."""

from __future__ import annotations

import json
import re
import signal
from typing import TYPE_CHECKING

import pytest

from .files import HUB_MODEL, MODEL
from .shell import wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .lab import Lab

HEAD, WORKER = "192.168.200.1", "192.168.200.2"
TOKEN = "a" * 64
PROBE = (
    "from ray._raylet import GcsClient\n"
    f"for node in GcsClient(address='{HEAD}:6379').get_all_node_info().values():\n"
    "    if node.state == 0: print(node.node_manager_address, node.resources_total.get('GPU'))\n"
)


class Pair:
    """Ray in a container on both nodes, and vLLM on the head, as an operator would do it by hand."""

    def __init__(self, lab: Lab, environment: Mapping[str, str] | None = None) -> None:
        self.lab = lab
        self.environment = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": TOKEN,
            "RAY_memory_monitor_refresh_ms": "0",
            "NCCL_DEBUG": "INFO",
            "NCCL_SOCKET_IFNAME": "enp1s0f1np1",
            "NCCL_IB_HCA": "rocep1s0f1,roceP2p1s0f1",
            **(environment or {}),
        }

    def container(self, key: str, ip: str, *command: str) -> None:
        variables = {**self.environment, "VLLM_HOST_IP": ip}
        settings = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
        flags = [
            "--detach",
            "--init",
            "--name=vllm",
            "--network=host",
            "--gpus=all",
            "--device=/dev/infiniband",
        ]
        cache = "--volume=/root/.cache/huggingface:/root/.cache/huggingface:ro"
        model = f"--volume={MODEL}:{MODEL}:ro"
        self.lab.docker(key, "run", *flags, cache, model, *settings, "lab/vllm:stub", *command)

    def start_ray(self) -> Pair:
        self.container(
            "a", HEAD, "ray", "start", "--head", "--block", f"--node-ip-address={HEAD}", "--port=6379"
        )
        self.container(
            "b", WORKER, "ray", "start", "--block", f"--address={HEAD}:6379", f"--node-ip-address={WORKER}"
        )
        return self

    def wait_for_log(self, text: str, key: str = "a") -> str:
        wait_for(text, lambda: text in self.log(key), timeout_s=20)
        return self.log(key)

    def log(self, key: str = "a") -> str:
        done = self.lab.try_run(key, "sh", "-c", "docker logs vllm 2>&1")
        return done.stdout

    def members(self, **variables: str) -> str:
        extra = [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
        done = self.lab.try_run("a", "docker", "exec", *extra, "vllm", "python3", "-c", PROBE)
        return done.stdout + done.stderr

    def wait_until_joined(self) -> Pair:
        wait_for("both nodes in Ray", lambda: self.members().count("\n") == 2, timeout_s=20)
        return self

    def serve(self, *options: str, model: str = MODEL) -> Pair:
        words = f"exec vllm serve {model} --served-model-name=stub --host=127.0.0.1 --port=8000 "
        words += f"--tensor-parallel-size=2 --distributed-executor-backend=ray {' '.join(options)} "
        words += ">/proc/1/fd/1 2>&1"
        self.lab.docker(
            "a", "exec", "--detach", "vllm", "sh", "-c", f"({words}); echo vllm ended with $? >/proc/1/fd/1"
        )
        return self

    def wait_until_serving(self) -> Pair:
        self.wait_for_log("Application startup complete.")
        return self

    def ask(self, path: str, question: Mapping[str, object] | None = None, *options: str) -> str:
        body = ["--json", json.dumps(question)] if question else []
        url = f"http://127.0.0.1:8000{path}"
        return self.lab.try_run("a", "curl", "--silent", "--no-buffer", *options, *body, url).stdout


@pytest.fixture
def serving(lab):
    return Pair(lab).start_ray().wait_until_joined().serve().wait_until_serving()


def failing(lab: Lab, **environment: str) -> str:
    """The log of a start that fails."""
    pair = Pair(lab, environment).start_ray().wait_until_joined().serve()
    return pair.wait_for_log("vllm ended with")


# --- ray ----------------------------------------------------------------------------------------------


def test_two_nodes_join_on_their_fabric_addresses(lab):
    """
    The supervisor's join probe asks the module `ray` as it asks the real one.
    """
    pair = Pair(lab).start_ray().wait_until_joined()

    assert sorted(pair.members().split("\n")) == ["", f"{HEAD} 1.0", f"{WORKER} 1.0"]


def test_a_wrong_token_is_refused(lab):
    """
    Ray 2.60 with RAY_AUTH_MODE=token.
    """
    pair = Pair(lab).start_ray().wait_until_joined()

    assert "AuthenticationError: RPC error: InvalidAuthToken" in pair.members(RAY_AUTH_TOKEN="b" * 64)


def test_a_refused_join_blocks_for_ever(lab):
    """
    `ray start --address` to a dead head has no exit of its own (over 5 min, measured).
    """
    pair = Pair(lab, {"LAB_RAY_REFUSE_JOIN_ON": WORKER}).start_ray()

    log = pair.wait_for_log("within 5 seconds.", "b")

    assert f"Failed to connect to GCS at address {HEAD}:6379 within 5 seconds." in log
    assert lab.inspect("b", "vllm")["State"]["Running"] is True


def test_a_head_may_register_under_a_foreign_address(lab):
    """
    Lesson 3: an external address that the worker cannot reach.
    """
    pair = Pair(lab, {"LAB_RAY_IP": "10.1.230.180"}).start_ray().wait_until_joined()

    assert "10.1.230.180 1.0" in pair.members()


# --- vllm ---------------------------------------------------------------------------------------------


def test_tokens_stream_over_the_fabric(lab, serving):
    """
    The fabric's counter moves with the tokens, and nothing goes over the management network.
    """
    lab.count_management_packets()
    before = lab.fabric_bytes("a")

    stream = serving.ask(
        "/v1/completions", {"model": "stub", "prompt": "x", "max_tokens": 20, "stream": True}
    )

    assert stream.count("data: {") == 20
    assert lab.fabric_bytes("a") - before > 100_000
    assert lab.management_packets() == 0


def test_a_model_of_the_hub_is_read_from_the_cache(lab):
    """
    Offline: a snapshot in the Hugging Face cache is enough.
    """
    pair = Pair(lab).start_ray().wait_until_joined().serve(model=HUB_MODEL).wait_until_serving()

    assert HUB_MODEL in pair.ask("/v1/models")


def test_an_api_key_guards_the_paths_under_v1(lab):
    """
    And no other path, as in vLLM.
    """
    pair = Pair(lab, {"VLLM_API_KEY": "key"}).start_ray().wait_until_joined().serve().wait_until_serving()
    code = ["--output", "/dev/null", "--write-out", "%{http_code}"]

    codes = [
        pair.ask("/v1/models", None, *code),
        pair.ask("/v1/models", None, *code, "--header", "Authorization: Bearer key"),
        pair.ask("/health", None, *code),
    ]

    assert codes == ["401", "200", "200"]


def test_a_dead_rank_breaks_the_stream_and_vllm_ends_with_0(lab, serving):
    """
    A broken stream is a 200 that ends in an error and [DONE]; vLLM's exit code says nothing.
    """
    serving.lab.docker(
        "a",
        "exec",
        "--detach",
        "vllm",
        "sh",
        "-c",
        "sleep 0.5; kill -9 $(pgrep ray::RayWorkerP)",
    )

    stream = serving.ask(
        "/v1/completions", {"model": "stub", "prompt": "x", "max_tokens": 999, "stream": True}
    )

    assert "EngineCore encountered an issue." in stream.splitlines()[-4]
    assert stream.strip().endswith("data: [DONE]")
    assert "vllm ended with 0" in serving.wait_for_log("vllm ended with")


def test_a_stopped_rank_stalls_the_engine_and_health_stays_good(lab, serving):
    """
    The hang that only the iteration counter shows.
    """
    lab.kill("b", "^ray::RayWorkerProc", signal.SIGSTOP)
    serving.ask("/v1/completions", {"model": "stub", "prompt": "x", "max_tokens": 9}, "--max-time", "0.5")

    metrics = serving.ask("/metrics")

    assert re.search(r"iteration_tokens_total_count\{.*\} 0\.0", metrics)
    assert serving.ask("/health", None, "--write-out", "%{http_code}") == "200"


def test_streams_survive_a_short_cut_of_the_link(lab, serving):
    """
    Ray, TCP and the client's stream all live through it; measured 20 s with the real ones.
    """
    script = "sleep 0.3; ip link set enp1s0f1np1 down; sleep 1; ip link set enp1s0f1np1 up"
    lab.run("a", "sh", "-c", f"({script}) >/dev/null 2>&1 &")

    stream = serving.ask(
        "/v1/completions", {"model": "stub", "prompt": "x", "max_tokens": 40, "stream": True}
    )

    assert stream.count("data: {") == 40


def test_a_node_that_stays_silent_is_marked_dead(lab):
    """
    After 64 s in the real Ray; the engine ends then, as after a killed rank.
    """
    pair = Pair(lab, {"LAB_RAY_DEAD_AFTER": "2"}).start_ray().wait_until_joined().serve().wait_until_serving()

    lab.fabric(up=False)

    log = pair.wait_for_log("vllm ended with 0")
    assert f"address: {WORKER} and node name: {WORKER} has been marked dead because the detector" in log
    assert "RayWorkerProc rank=[1] died unexpectedly, shutting down executor." in log


def test_the_transport_is_said_as_nccl_says_it(lab, serving):
    """
    HCAs named and present: NET/IB.
    """
    assert "via NET/IB/0" in serving.log()


@pytest.mark.parametrize(
    ("environment", "cause"),
    [
        ({"LAB_VLLM_EXIT_AT": "weights"}, "safetensors_rust.SafetensorError"),
        ({"LAB_VLLM_EXIT_AT": "graphs"}, "torch.OutOfMemoryError: CUDA out of memory."),
        ({"LAB_VLLM_ARCH_ERROR": "vllm"}, "are not supported for now."),
        ({"LAB_VLLM_ARCH_ERROR": "transformers"}, "Transformers does not recognize this architecture."),
        (
            {"LAB_RAY_MEMORY_KILL": "1", "RAY_memory_monitor_refresh_ms": "250"},
            "killed due to the node running low on memory.",
        ),
    ],
)
def test_a_failing_start_says_why_and_ends_with_1(lab, environment, cause):
    """
    With the real words, so that the diagnosis can be tested on them.
    """
    log = failing(lab, **environment)

    assert cause in log
    assert "vllm ended with 1" in log


def test_the_memory_monitor_kills_nothing_when_it_is_off(lab):
    """
    Lesson 5: RAY_memory_monitor_refresh_ms=0.
    """
    Pair(lab, {"LAB_RAY_MEMORY_KILL": "1"}).start_ray().wait_until_joined().serve().wait_until_serving()


def test_a_missing_model_names_the_node(lab):
    """
    A checkpoint that lies on one node alone.
    """
    lab.run("b", "rm", "-r", MODEL)

    assert f"ip={WORKER}) ERROR OSError: Can't load the configuration of '{MODEL}'" in failing(lab)


def test_an_unknown_option_ends_with_2(lab):
    """
    As argparse in the real one.
    """
    pair = Pair(lab).start_ray().wait_until_joined().serve("--bogus")

    log = pair.wait_for_log("vllm ended with")

    assert "vllm serve: error: unrecognized arguments: --bogus" in log
    assert "vllm ended with 2" in log
