"""
How fast and how big the tool itself is: `python -m tests.measure [--runs N] [--no-lab]`, for docs/measurements.md.

Whole processes, wall clock, medians with minimum and maximum; peak resident memory of the process itself. The
lab part (root) runs `up`, a no-op `up`, `status` and `down` against the stub engine; `up beyond the engine` is
`up` less the time from the start of `vllm serve` to its readiness, as the head's supervisor saw it.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.admin import AdminHome, spark_deploy_program
from tests.lab.inventory import write_inventory
from tests.lab.lab import Lab
from tests.lab.topology import Topology

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "inventories/example.yaml"


@dataclass(frozen=True)
class Taken:
    """Seconds on the clock, peak resident memory in MB, what was printed."""

    seconds: float
    rss_mb: float
    output: str


def run(words: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> Taken:
    began = time.monotonic()
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, cwd=cwd
    )
    output = process.stdout.read() if process.stdout else ""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {process.returncode}:\n{output}")
    return Taken(time.monotonic() - began, usage.ru_maxrss / 1024, output)


def show(name: str, seconds: Sequence[float], rss_mb: Sequence[float], wanted: str) -> None:
    middle = f"{statistics.median(seconds):.2f} | {min(seconds):.2f} to {max(seconds):.2f}"
    print(f"| {name} | {middle} | {max(rss_mb, default=0):.0f} | {wanted} |", flush=True)


def offline(runs: int) -> None:
    program = spark_deploy_program()
    for name, arguments, wanted in (
        ("`--version`", ["--version"], "≤ 0.15 s"),
        ("`--help`", ["--help"], "≤ 0.25 s"),
        ("`render`", ["render", "-i", str(EXAMPLE)], "≤ 0.6 s"),
    ):
        taken = [run([*program, *arguments]) for _ in range(runs)]
        show(name, [one.seconds for one in taken], [one.rss_mb for one in taken], wanted)


def on_the_lab(runs: int) -> None:
    lab = Lab(Topology("measure"))
    try:
        lab.up()
        with tempfile.TemporaryDirectory() as folder:
            admin = AdminHome(lab, Path(folder)).create()
            write_inventory(admin)
            rounds = [one_round(admin) for _ in range(runs)]
    finally:
        lab.down()
    for name, wanted in (
        ("`up` on the stub lab", ""),
        ("… of it beyond the engine's own start", "≤ 5 s"),
        ("`up` again, unchanged", "≤ 2 s"),
        ("`status`", ""),
        ("`down`", ""),
    ):
        taken = [one[name] for one in rounds]
        show(name, [one.seconds for one in taken], [one.rss_mb for one in taken], wanted)


def one_round(admin: AdminHome) -> dict[str, Taken]:
    def deploy(*arguments: str) -> Taken:
        words = admin.command([*spark_deploy_program(), *arguments])
        return run(words, env=admin.environment(), cwd=admin.home)

    up = deploy("up", "--output", "json")
    engine_s = engine_seconds(up.output)
    return {
        "`up` on the stub lab": up,
        "… of it beyond the engine's own start": Taken(up.seconds - engine_s, up.rss_mb, ""),
        "`up` again, unchanged": deploy("up"),
        "`status`": deploy("status"),
        "`down`": deploy("down"),
    }


def engine_seconds(events: str) -> float:
    """From the first sight of the engine's start to the first of serving, on the head."""
    times = {}
    for line in events.splitlines():
        at, phase = re.search(r'"at": ?([0-9.]+)', line), re.search(r'"phase": ?"([a-z-]+)"', line)
        if at and phase and '"spark-a"' in line:
            times.setdefault(phase.group(1), float(at.group(1)))
    return times["serving"] - times["starting-engine"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--no-lab", action="store_true")
    options = parser.parse_args()
    print(f"{os.cpu_count()} cores, Python {sys.version.split()[0]}, {options.runs} runs\n")
    print("| command | median s | min to max s | peak MB | wanted |\n|---|---|---|---|---|")
    offline(options.runs)
    if not options.no_lab:
        on_the_lab(options.runs)


if __name__ == "__main__":
    main()
