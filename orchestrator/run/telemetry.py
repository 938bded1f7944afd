"""What the nodes do while the load runs: one script per node, a line every 2 s."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.bench.estimate import spread
from orchestrator.errors import SparkDeployError
from orchestrator.model.bench import NodeLoad
from orchestrator.model.plan import Script
from orchestrator.planning.render import render_script

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from orchestrator.model.inventory import Inventory, Node
    from orchestrator.remote.host import Host

LIMIT_S = 7 * 86400  # no sweep is longer; the script ends with us
WORD = 4  # bytes: the unit of port_rcv_data and port_xmit_data (InfiniBand, PortCounters)
KIB_PER_GIB = 1 << 20
# NVML, nvmlClocksEventReasons: what slows a busy GPU down. Not: it is idle (0x1), its clock was chosen (0x2, 0x10).
THROTTLES = {
    0x04: "sw_power_cap",
    0x08: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
}


@dataclass(frozen=True)
class Sample:
    """One line of the script; None: the node does not say ([N/A])."""

    clock_mhz: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    utilisation_pct: float | None = None
    memory_kib: float | None = None
    netdev_bytes: float | None = None
    rdma_words: float | None = None
    reasons: int | None = None  # bits of THROTTLES
    problem: str = ""


def telemetry_script(inventory: Inventory, node: Node) -> Script:
    fabric = node.fabric
    text = render_script("telemetry", inventory, node, interface=fabric.interface, hcas=fabric.hcas)
    return Script(text, LIMIT_S)


def parse_sample(line: str) -> Sample | None:
    """Give what one line says, None for one that is not the script's."""
    fields = dict(part.partition("=")[::2] for part in line.split("\t"))
    if "gpu" not in fields:
        return None
    values = [value.strip() for value in fields["gpu"].split(",")]
    told = len(values) > 3
    gpu = [_number(value) for value in values[:4]] if told else [None] * 4
    return Sample(
        gpu[0],
        gpu[1],
        gpu[2],
        gpu[3],
        _number(fields.get("memory_kib", "")),
        _number(fields.get("netdev_bytes", "")),
        _number(fields.get("rdma_words", "")),
        _mask(values[4:]),
        problem="" if told else f"nvidia-smi: {fields['gpu'].strip() or 'no answer'}",
    )


def _number(text: str) -> float | None:
    """`2405`, `0 %` or `4.21 W`; None for `[N/A]`."""
    found = re.match(r"-?\d+(\.\d+)?", text)
    return float(found.group()) if found else None


def _mask(values: Sequence[str]) -> int | None:
    with suppress(IndexError, ValueError):
        return int(values[0], 16)
    return None


def node_load(
    node: str, samples: Sequence[Sample], before: Sample | None = None, problem: str = ""
) -> NodeLoad:
    """
    Sum *samples* of one repeat up; counters are compared with the sample *before* it, so they are exact to 2 s.

    *problem* is why there are no (more) samples.
    """
    counted = [*([before] if before else []), *samples]
    memory = [sample.memory_kib for sample in samples if sample.memory_kib is not None]
    words = _grown([sample.rdma_words for sample in counted])
    return NodeLoad(
        node=node,
        samples=len(samples),
        gpu_clock_mhz=spread(_known([sample.clock_mhz for sample in samples])),
        gpu_temperature_c=spread(_known([sample.temperature_c for sample in samples])),
        gpu_power_w=spread(_known([sample.power_w for sample in samples])),
        gpu_utilisation_pct=spread(_known([sample.utilisation_pct for sample in samples])),
        throttled=_throttles([sample.reasons or 0 for sample in samples]),
        rdma_bytes=None if words is None else WORD * words,
        netdev_bytes=_grown([sample.netdev_bytes for sample in counted]),
        memory_available_min_gib=min(memory) / KIB_PER_GIB if memory else None,
        problem=problem or next((sample.problem for sample in samples if sample.problem), ""),
    )


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _throttles(masks: Sequence[int]) -> tuple[str, ...]:
    return tuple(name for bit, name in THROTTLES.items() if any(mask & bit for mask in masks))


def _grown(values: Sequence[float | None]) -> int | None:
    """By how much a counter grew; None where it was not read twice, or began anew."""
    known = _known(values)
    return int(known[-1] - known[0]) if len(known) > 1 and known[-1] >= known[0] else None


class Watcher:
    """The script on one node, in a thread. Whatever becomes of it, the sweep goes on."""

    def __init__(self, host: Host, script: Script) -> None:
        self._host = host
        self._script = script
        self._samples: list[Sample] = []
        self._from = 0
        self._problem = ""
        self._thread = threading.Thread(target=self._run, name=f"telemetry-{host.node.name}", daemon=True)
        self._thread.start()

    def begin(self) -> None:
        self._from = len(self._samples)

    def taken(self) -> NodeLoad:
        begun, samples = self._from, tuple(self._samples)
        before = samples[begun - 1] if begun else None
        return node_load(self._host.node.name, samples[begun:], before, self._problem)

    def end(self) -> None:
        with suppress(SparkDeployError):
            self._host.cancel()
        self._thread.join(30)

    def _run(self) -> None:
        try:
            outcome = self._host.run(self._script.text, timeout_s=self._script.timeout_s, on_line=self._hear)
        except SparkDeployError as error:
            self._problem = error.found or error.message
        else:
            said = (outcome.stderr.strip().splitlines() or ["no reason given"])[-1]
            self._problem = f"the script ended with {outcome.exit_code}: {said}"

    def _hear(self, line: str) -> None:
        sample = parse_sample(line)
        if sample:
            self._samples.append(sample)


@dataclass(frozen=True)
class Telemetry:
    """All nodes: begin() where a repeat begins, taken() where it ends."""

    watchers: tuple[Watcher, ...] = ()

    def begin(self) -> None:
        for watcher in self.watchers:
            watcher.begin()

    def taken(self) -> tuple[NodeLoad, ...]:
        return tuple(watcher.taken() for watcher in self.watchers)


@contextmanager
def watching(
    hosts: Mapping[str, Host],
    inventory: Inventory,
    script: Callable[[Inventory, Node], Script] = telemetry_script,
) -> Iterator[Telemetry]:
    """
    Watch the nodes until the end of the block. Nothing else may run on these hosts meanwhile: the end cancels it.

    A node that is lost, or has no nvidia-smi, says so in its NodeLoad's *problem*.
    """
    telemetry = Telemetry(tuple(Watcher(host, script(inventory, host.node)) for host in hosts.values()))
    try:
        yield telemetry
    finally:
        for watcher in telemetry.watchers:
            watcher.end()
