"""What the nodes do during a repeat, from the lines of one script, and whatever becomes of it."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.errors import UnreachableError
from orchestrator.remote.host import Outcome
from orchestrator.run.telemetry import Sample, node_load, parse_sample, watching
from tests.unit.examples import INVENTORY
from tests.unit.fake_host import FakeHost

# A GB10 under load and one that is idle, as drivers 580 and 610 say it: no power limit, no memory.
BUSY = "gpu=2405, 52, 92.51, 96, 0x0000000000000004\tmemory_kib=12582912\tnetdev_bytes=1000\trdma_words=500"
IDLE = "gpu=208, 36, 3.74, 0, 0x0000000000000001\tmemory_kib=125829120\tnetdev_bytes=3000\trdma_words=10500"
NO_SMI = "gpu=timeout: failed to run command 'nvidia-smi': No such file or directory\tmemory_kib=1\tnetdev_bytes=\trdma_words="


def sample(line: str) -> Sample:
    parsed = parse_sample(line)
    assert parsed
    return parsed


def load(*lines: str, before: str = "", problem: str = ""):
    return node_load("spark-1", [sample(line) for line in lines], sample(before) if before else None, problem)


def test_a_line_of_a_gb10_is_read() -> None:
    assert sample(BUSY) == Sample(2405, 52, 92.51, 96, 12582912, 1000, 500, reasons=4)


def test_what_a_gb10_does_not_tell_is_left_out() -> None:
    """It says `[N/A]` to many a question, and units stand where `nounits` is not heeded."""
    line = "gpu=[N/A], 41, 4.21 W, 0 %, [N/A]\tmemory_kib=1\tnetdev_bytes=\trdma_words="

    assert sample(line) == Sample(None, 41, 4.21, 0, 1, None, None)


def test_an_old_driver_tells_no_reasons() -> None:
    assert sample("gpu=2405, 52, 92.51, 96\tmemory_kib=1").reasons is None


def test_a_line_of_somebody_elses_is_none() -> None:
    """A login shell may print what it likes."""
    assert parse_sample("Welcome to DGX OS") is None


def test_counters_are_bytes_grown_since_the_sample_before() -> None:
    """port_xmit_data counts words of 4 bytes."""
    grown = load(IDLE, before=BUSY)

    assert (grown.rdma_bytes, grown.netdev_bytes) == (40_000, 2_000)


def test_one_sample_alone_has_not_grown() -> None:
    assert load(BUSY).rdma_bytes is None


def test_a_counter_that_began_anew_is_not_believed() -> None:
    assert load(IDLE, BUSY).rdma_bytes is None


def test_a_gpu_that_is_slowed_down_says_why() -> None:
    hot = BUSY.replace("0x0000000000000004", "0x0000000000000068")

    assert load(IDLE, hot).throttled == (
        "hw_slowdown",
        "sw_thermal_slowdown",
        "hw_thermal_slowdown",
    )


def test_an_idle_gpu_is_not_throttled() -> None:
    assert load(IDLE).throttled == ()


def test_the_least_free_memory_counts() -> None:
    assert load(IDLE, BUSY).memory_available_min_gib == 12


def test_figures_are_spread_over_the_repeat() -> None:
    seen = load(IDLE, BUSY)

    assert (seen.samples, seen.gpu_temperature_c.maximum, seen.gpu_clock_mhz.mean) == (2, 52, 1306.5)


def test_a_node_without_nvidia_smi_says_so() -> None:
    seen = load(NO_SMI)

    assert (
        seen.problem == "nvidia-smi: timeout: failed to run command 'nvidia-smi': No such file or directory"
    )
    assert seen.gpu_clock_mhz.n == 0


def taken_after_the_end(host: FakeHost) -> Any:
    """The script has come to its end by then."""
    with watching({"spark-1": host}, INVENTORY) as telemetry:
        pass
    return telemetry.taken()[0]


def test_the_script_ends_with_the_sweep() -> None:
    host = FakeHost(INVENTORY.head)
    host.block("nvidia-smi")

    with watching({"spark-1": host}, INVENTORY):
        assert host.started.wait(20)

    assert host.calls[-1] == "cancel"


def test_lines_before_the_repeat_do_not_count() -> None:
    host = FakeHost(INVENTORY.head)
    host.answer("nvidia-smi", Outcome(143, f"{BUSY}\n{IDLE}\n", ""))

    with watching({"spark-1": host}, INVENTORY) as telemetry:
        pass
    telemetry.begin()

    assert (telemetry.taken()[0].samples, telemetry.taken()[0].rdma_bytes) == (0, None)


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        (UnreachableError("lost", at="spark-1", found="no word from the node"), "no word from the node"),
        (Outcome(127, "", "bash: not found\n"), "the script ended with 127: bash: not found"),
    ],
    ids=["lost", "ended"],
)
def test_a_node_that_falls_silent_never_ends_the_sweep(what: object, problem: str) -> None:
    host = FakeHost(INVENTORY.head)
    host.answer("nvidia-smi", what)

    assert taken_after_the_end(host).problem == problem
