"""What the supervisor reads out of the engine's log, from recorded logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from supervisor.log import EngineLog, parse_transport
from supervisor.progress import parse_progress
from supervisor.watching import Counters, parse_metrics

LOGS = Path(__file__).parents[1] / "fixtures" / "logs"


def read(name: str) -> Any:
    log = EngineLog()
    for line in (LOGS / name).read_text().splitlines():
        log.feed(line)
    return log


def steps(name: str) -> list[str]:
    """The texts that an operator sees one after the other."""
    log, seen = EngineLog(), [""]
    for line in (LOGS / name).read_text().splitlines():
        log.feed(line)
        if log.progress.text != seen[-1]:
            seen.append(log.progress.text)
    return seen[1:]


def test_progress_of_a_start_on_a_spark() -> None:
    assert steps("gb10-start.log") == [
        "vllm starting",
        "weights 1/2",
        "weights loaded",
        "compiling",
        "compiled",
        "profiling memory",
        "KV cache",
        "graphs captured",
        "engine ready",
        "API starting",
    ]


def test_progress_of_two_ranks_over_ray_never_goes_back() -> None:
    """
    The other rank's lines come late: "loading weights" follows "Application startup complete".
    """
    assert steps("healthy.log") == [
        "vllm starting",
        "engine starting",
        "weights 0/1",
        "weights 1/1",
        "weights loaded",
        "KV cache",
        "engine ready",
        "API starting",
    ]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            "Loading safetensors checkpoint shards:  43% Completed | 3/7 [00:10<00:14,  3.6s/it]",
            "weights 3/7",
        ),
        (
            "Loading safetensors using Fastsafetensor loader: 100% Completed | 3/3 [00:09<00:00]",
            "weights 3/3",
        ),
        ("Multi-thread loading shards:  50% Completed | 1/2 [00:01<00:01,  1.0s/it]", "weights 1/2"),
        (
            "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  40%|████      | 20/51 [00:03",
            "capturing graphs 40%",
        ),
        (
            "(EngineCore pid=9) INFO 11-30 19:04:08 [ray_utils.py:1] Waiting for creating a placement group of specs for 10 seconds.",
            "waiting for the GPUs in Ray",
        ),
        ("INFO 02-05 22:50:47 [monitor.py:34] torch.compile takes 4.91 s in total", "compiled"),
        (
            "(Worker_TP0 pid=1) INFO [kernel_warmup.py:368] Running FlashInfer autotune with 8192 tokens",
            "autotuning kernels",
        ),
        (
            "spark-a:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 - Init START",
            "ranks connecting",
        ),
    ],
)
def test_line_tells_the_phase(line: str, text: str) -> None:
    assert parse_progress(line).text == text


def test_line_that_says_nothing_is_no_progress() -> None:
    assert parse_progress('INFO:     127.0.0.1:49360 - "GET /health HTTP/1.1" 200 OK') is None


def test_colours_do_not_hide_the_phase() -> None:
    line = "\x1b[36m(RayWorkerProc pid=541)\x1b[0m Loading safetensors checkpoint shards: 100% Completed | 1/1 [00:00"

    assert parse_progress(line).text == "weights 1/1"


@pytest.mark.parametrize(
    ("name", "transport"),
    [
        ("nccl-ib.log", "NET/IB"),
        ("nccl-socket.log", "NET/Socket"),
        ("healthy.log", "gloo"),
        ("port-taken.log", ""),
    ],
)
def test_transport_is_read_from_the_log(name: str, transport: str) -> None:
    assert read(name).transport == transport


@pytest.mark.parametrize(
    ("line", "transport"),
    [
        ("NCCL INFO Channel 09/0 : 1[0] -> 0[0] [send] via NET/IBext_v10/1", "NET/IB"),
        ("NCCL INFO NET/IB : No device found.", ""),
        ("NCCL INFO NET/Socket : Using [0]eth0:192.0.2.20<0>", ""),
    ],
)
def test_only_a_verdict_proves_the_transport(line: str, transport: str) -> None:
    """
    `No device found` may be followed by NET/IB, and a loaded plugin carries nothing yet.
    """
    assert parse_transport(line) == transport


def test_one_channel_over_tcp_outweighs_the_others() -> None:
    log = EngineLog()
    log.feed("NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0")
    log.feed("NCCL INFO Channel 01/0 : 0[0] -> 1[0] [send] via NET/IB/0")

    assert log.transport == "NET/Socket"


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("kv-cache-too-small.log", "ValueError: No available memory for the cache blocks."),
        ("shm-across-nodes.log", "RuntimeError: open shm in SHMManager failed. errno: 2"),
        ("gloo-wrong-interface.log", "RuntimeError: [enforce fail at"),
        ("port-taken.log", "OSError: [Errno 98] Address already in use"),
        ("rank-killed.log", "a process of the engine died or was killed on 192.168.201.2"),
        ("node-marked-dead.log", "Ray marked 192.168.201.2 dead"),
        ("raylet-killed.log", "raylet [exit code=-9]"),
    ],
)
def test_cause_is_the_first_one_not_the_last_line(name: str, cause: str) -> None:
    """
    The last lines of a failed start say `Engine core initialization failed. See root cause above.`
    """
    assert read(name).cause.startswith(cause)


@pytest.mark.parametrize(
    ("name", "ip"),
    [("shm-across-nodes.log", "192.168.201.2"), ("rank-killed.log", "192.168.201.2"), ("port-taken.log", "")],
)
def test_node_at_fault_is_the_one_that_ray_names(name: str, ip: str) -> None:
    assert read(name).ip == ip


def test_what_a_model_config_refuses_stands_on_the_next_line() -> None:
    """
    An image too old for the model: pydantic's first line names no reason.
    """
    log = EngineLog()
    log.feed("pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig")
    log.feed(
        "  Value error, The checkpoint you are trying to load has model type `qwen3_5_moe` but Transformers does not"
    )

    assert (
        "ModelConfig: Value error, The checkpoint you are trying to load has model type `qwen3_5_moe`"
        in log.cause
    )


def failed_to_start(*lines: str) -> list[str]:
    said = ["EngineCore failed to start.", *lines]
    return [f"(EngineCore pid=1) ERROR 11-30 19:39:09 [core.py:1510] {line}" for line in said]


def test_next_line_is_taken_also_out_of_a_traceback() -> None:
    log = EngineLog()
    for line in failed_to_start("ValidationError: 1 validation error for ModelConfig", "  Value error, why"):
        log.feed(line)

    assert log.cause == "ValidationError: 1 validation error for ModelConfig: Value error, why"


def test_second_traceback_is_not_the_cause() -> None:
    log = EngineLog()
    for line in [*failed_to_start("ValueError: first"), "(EngineCore pid=1) Process EngineCore:"]:
        log.feed(line)
    for line in failed_to_start("ValueError: second"):
        log.feed(line)

    assert log.cause == "ValueError: first"


def test_wrong_flag_is_a_cause() -> None:
    log = EngineLog()
    log.feed("usage: vllm serve [model_tag] [options]")
    log.feed("vllm serve: error: unrecognized arguments: --max-modell-len=5")

    assert log.cause == "vllm serve: error: unrecognized arguments: --max-modell-len=5"


def test_pages_that_ray_quotes_are_not_its_last_lines() -> None:
    """
    Forty kilobytes of raylet.out are in the evidence; what counts is which process ended.
    """
    tail = list(read("raylet-killed.log").tail)

    assert not any("Plasma" in line or "state-dump" in line for line in tail)
    assert any("raylet [exit code=-9]" in line for line in tail)


def test_metrics_give_work_and_steps() -> None:
    counters = parse_metrics((LOGS / "metrics.txt").read_text())

    assert counters == Counters(requests=0, steps=316 + 316)


def test_engine_without_step_counter_has_no_counters() -> None:
    assert parse_metrics("vllm:num_requests_running{} 1\nnonsense\n") is None
