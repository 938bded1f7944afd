"""The cause of a failed start is found among its consequences."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.diagnosis.cause import find_cause, hint_for

LOGS = Path(__file__).parents[1] / "fixtures" / "logs"


def finding(name: str):
    return find_cause({"spark-1": (LOGS / f"{name}.log").read_text()})


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("gloo-wrong-interface", "Gloo found no address on the interface enp9s9"),
        ("kv-cache-too-small", "no memory is left for the KV cache"),
        ("port-taken", "a port is taken on the node"),
        ("host-ip-mismatch", "vLLM asks Ray for a node at 10.99.1.10"),
    ],
)
def test_a_real_broken_start_is_named(log: str, cause: str) -> None:
    """Each log is that of a real Ray and vLLM; its last lines are consequences."""
    found = finding(log)

    assert found is not None
    assert cause in found.cause
    assert found.hint


def test_a_healthy_start_has_no_cause() -> None:
    """Warnings of a good start must not frighten anybody."""
    assert finding("healthy") is None


def test_an_unknown_cause_is_quoted_not_guessed() -> None:
    """The exception that ends the first engine traceback is shown as it stands."""
    found = finding("shm-across-nodes")

    assert found is not None
    assert (found.cause, found.quote) == ("", "RuntimeError: open shm in SHMManager failed. errno: 2")


def test_what_died_with_the_engine_is_not_quoted_as_its_end() -> None:
    """The other ranks say only that somebody else is gone."""
    log = "EngineCore failed to start.\nRuntimeError: cancelled\nValueError: the real one"
    found = find_cause({"spark-1": log})

    assert found is not None
    assert found.quote == "ValueError: the real one"


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        (
            "The checkpoint you are trying to load has model type `gemma4` but Transformers does not recognize this "
            "architecture.",
            "the image is too old for this model: its Transformers does not know the architecture gemma4",
        ),
        (
            "Value error, Model architectures ['Spark2_5ForCausalLM'] are not supported for now.",
            "this vLLM has no support for the model's architecture 'Spark2_5ForCausalLM'",
        ),
        (
            "Memory on the node (IP: 192.0.2.12) was 113.76GB / 119.70GB (0.950345), which exceeds the threshold",
            "Ray's memory monitor killed a process (memory of 192.0.2.12: 113.76GB / 119.70GB)",
        ),
        (
            "NCCL WARN socketFinalizeConnect: Connect to 192.0.2.1<40001> failed : Software caused connection abort",
            "NCCL could not connect the nodes",
        ),
        (
            "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully "
            "covered",
            "a weight file of the model is broken, as after a download that was cut",
        ),
        (
            "OSError: [Errno 99] Cannot assign requested address",
            "a process wants to listen at an address that the node does not hold",
        ),
        ("vllm: error: unrecognized arguments: --bogus", "this vLLM does not know the option --bogus"),
    ],
)
def test_a_known_line_is_explained_whichever_node_said_it(line: str, cause: str) -> None:
    """The cause is often in the other node's log."""
    found = find_cause(
        {"spark-1": "EngineCore failed to start.\nRuntimeError: x", "spark-2": f"\x1b[31m{line}\x1b[0m"}
    )

    assert found is not None
    assert (found.node, cause in found.cause) == ("spark-2", True), found


def test_a_warning_of_a_good_start_about_an_address_is_no_cause() -> None:
    """PyTorch tries ::1 first, and says so."""
    line = "[c10d] The client socket has failed to connect to [localhost]:29500 (errno: 99 - Cannot assign requested address)."

    assert find_cause({"spark-1": line}) is None


@pytest.mark.parametrize(
    ("cause", "remedies"),
    [
        (
            "transport is NET/Socket (TCP), wanted NET/IB (RDMA): see /dev/infiniband, memlock, hcas",
            ("/dev/infiniband", "memlock", "hcas", "`transport: tcp` in the inventory"),
        ),
        ("spark-2 (192.168.200.2) did not join Ray in 25 s", ("firewall on the fabric", "ports.ray")),
        ("spark-2 did not join the Ray cluster within 25 s: …", ("firewall on the fabric",)),
        ("ray start did not join 192.168.200.1:6379 in 60 s", ("firewall on the fabric",)),
        (
            "exit code 1: Docker does not answer: Cannot connect to the Docker daemon",
            ("systemctl start docker",),
        ),
        ("permission denied while trying to connect to the Docker daemon socket", ("usermod",)),
        ("SafetensorError: incomplete metadata, file not fully covered", ("hf download",)),
    ],
)
def test_what_a_supervisor_or_a_script_says_has_a_remedy(cause: str, remedies: tuple[str, ...]) -> None:
    """A cause alone leaves its reader with a search engine."""
    hint = hint_for(cause)

    assert [word for word in remedies if word not in hint] == []


def test_what_a_supervisor_said_is_no_cause_in_a_log() -> None:
    """It may be of an attempt before: what a supervisor says now is in its state."""
    assert find_cause({"spark-1": "[supervise] transport is NET/Socket (TCP), wanted NET/IB (RDMA)"}) is None


def test_where_nothing_is_known_nothing_is_advised() -> None:
    assert hint_for("vLLM exited with 1") == ""
