"""Which deployment was measured, and what its first request waited for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.client.abilities import Capabilities
from orchestrator.diagnosis.cold import cold_reason
from orchestrator.model.bench import Deployment
from orchestrator.run.identity import (
    ColdLog,
    OnHead,
    added_ms,
    identify,
    parse_on_head,
    quant_of,
)
from tests.unit.examples import INVENTORY, RECIPE, container, facts, state
from tests.unit.fake_host import FakeHost

ARGS = "org/tiny\n--host=127.0.0.1\n--port=8000\n--tensor-parallel-size=2\n"
KNOWN = Capabilities("tiny", "/root/.cache/snapshots/1", "vllm", "0.32.0", 512)
ANSWER = """
@@ config
{
  "model_type": "qwen3_moe",

  "quantization_config": {"quant_method": "fp8"}
}

@@ total_size
"total_size": 125000000000

@@ files
62500000100
62500000100

@@ rtt
0.009500
0.001000
0.002000
0.003000

@@ end
"""


def head() -> FakeHost:
    files = {"~/.spark-deploy/home/spark-1/releases/0123456789ab/serve.args": ARGS.encode()}
    return FakeHost(INVENTORY.head, files=files)


def identity(host: FakeHost | None = None, **changes: Any) -> Deployment:
    running = {"containers": (container("0123456789ab"),), "state": state("serving", "0123456789ab")}
    seen = {"spark-1": facts(0, **{**running, **changes})}
    on_head = OnHead({"dtype": "bfloat16"})
    return identify(INVENTORY, RECIPE, seen, KNOWN, host or head(), on_head)


def test_the_deployment_is_what_runs() -> None:
    assert identity() == Deployment(
        name="home",
        release="0123456789ab",
        model="tiny",
        root="org/tiny",
        quant="bfloat16",
        image="example/vllm:1",
        image_id="sha256:abc",
        engine="vllm",
        engine_version="0.32.0",
        args=tuple(ARGS.splitlines()),
        nodes=("spark-1", "spark-2"),
        tensor_parallel=2,
        max_model_len=512,
    )


def test_an_image_that_was_replaced_meanwhile_is_not_named() -> None:
    """The tag points to another image than the one that runs: its ID alone is true."""
    running = replace(container("0123456789ab"), image="sha256:old")

    seen = identity(containers=(running,))

    assert (seen.image, seen.image_id) == ("", "sha256:old")


def test_a_release_folder_without_arguments_is_no_error() -> None:
    seen = identity(FakeHost(INVENTORY.head))

    assert (seen.args, seen.tensor_parallel, seen.root) == ((), None, KNOWN.root)


def test_what_the_head_says_of_the_model_is_read() -> None:
    told = parse_on_head(ANSWER)

    assert told.config["model_type"] == "qwen3_moe"
    assert (told.weight_bytes, told.rtt_ms) == (125_000_000_000, pytest.approx(2.0))


def test_one_file_of_weights_has_no_index() -> None:
    assert parse_on_head(ANSWER.replace('"total_size": 125000000000', "")).weight_bytes == 125_000_000_200


def test_a_head_that_says_nothing_is_no_error() -> None:
    assert parse_on_head("") == OnHead()


def test_a_round_trip_that_was_refused_is_none() -> None:
    """curl prints zeros then."""
    assert parse_on_head("@@ rtt\n" + "0.000000\n" * 6).rtt_ms is None


@pytest.mark.parametrize(
    ("through", "there", "added"), [(25.0, 5.0, 20.0), (4.0, 5.0, 0.0), (25.0, None, None), (None, 5.0, None)]
)
def test_added_latency_is_the_difference(
    through: float | None, there: float | None, added: float | None
) -> None:
    assert added_ms(through, there) == added


@pytest.mark.parametrize(
    ("config", "args", "quant"),
    [
        ({"quantization_config": {"quant_method": "fp8"}}, (), "fp8"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, (), "mxfp4"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, (), "nvfp4"),
        (
            {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "format": "nvfp4-pack-quantized",
                }
            },
            (),
            "nvfp4",
        ),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, (), "gptq-int4"),
        ({"text_config": {"quantization_config": {"quant_method": "fp8"}}}, (), "fp8"),
        ({"torch_dtype": "bfloat16"}, ("--quantization=fp8",), "fp8"),
        ({"text_config": {"dtype": "bfloat16"}}, (), "bfloat16"),
        ({}, (), ""),
    ],
)
def test_the_quantisation_is_read_from_the_model(
    config: dict[str, Any], args: tuple[str, ...], quant: str
) -> None:
    """Two results are compared only where it agrees."""
    assert quant_of(config, args) == quant


JIT = (
    "(Worker_TP0 pid=119) WARNING 05-15 16:04:22 [jit_monitor.py:103] Triton kernel JIT compilation during inference: "
    "{name}. This causes a latency spike; consider extending warmup to cover this shape/config."
)
ACCESS = '(APIServer pid=1) INFO:     127.0.0.1:54426 - "POST /v1/completions HTTP/1.1" 200 OK'


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([ACCESS], ""),
        ([JIT.format(name="_zero_kv_blocks_kernel")], "kernels were compiled (_zero_kv_blocks_kernel)"),
        (
            [JIT.format(name=name) for name in ("a", "b", "a", "c", "d")],
            "kernels were compiled (a, b and 2 more)",
        ),
        (
            ["2025-06-08 21:06:35,733 - INFO - flashinfer.jit: Loading JIT ops: cascade"],
            "FlashInfer built or loaded kernels (cascade)",
        ),
        (
            ["INFO 06-07 13:28:03 [monitor.py:53] torch.compile took 25.60 s in total"],
            "torch.compile ran",
        ),
        (
            [
                JIT.format(name="a"),
                "spark-1:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 - Init COMPLETE",
            ],
            "kernels were compiled (a); NCCL set its connections up",
        ),
    ],
)
def test_the_log_tells_what_the_first_request_waited_for(lines: list[str], reason: str) -> None:
    assert cold_reason(lines) == reason


def test_only_lines_since_the_request_count() -> None:
    """The engine compiled at its start, too, and the first request did not wait for that."""
    host = head()
    host.container_logs["spark-deploy-home"] = f"{JIT.format(name='at_start')}\n{ACCESS}\n".encode()
    log = ColdLog(INVENTORY, host)
    host.container_logs["spark-deploy-home"] += f"{JIT.format(name='in_request')}\n{ACCESS}\n".encode()

    assert log.reason() == "kernels were compiled (in_request)"


def test_a_quiet_log_says_nothing() -> None:
    host = head()
    host.container_logs["spark-deploy-home"] = f"{JIT.format(name='at_start')}\n".encode()

    assert ColdLog(INVENTORY, host).reason() == ""


def test_a_log_that_cannot_be_read_says_nothing() -> None:
    host = head()
    host.lose()

    assert ColdLog(INVENTORY, host).reason() == ""
