"""
How fast and how big the tool itself is: `python -m tests.measure [--runs N] [--no-lab]`, for docs/measurements.md.

Whole processes, wall clock, medians with minimum and maximum; peak resident memory of the process itself. The
lab part (root) runs `up`, a no-op `up`, `status` and `down` against the stub engine; "beyond the engine's own
start" is `up` less the time from `starting-engine` to `serving` on the head. Last comes one `up` whose worker never joins.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator import __version__
from tests.lab.admin import AdminHome, spark_deploy_program
from tests.lab.claim import free_topology
from tests.lab.inventory import write_inventory
from tests.lab.lab import Lab

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


def run(
    words: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: Path = ROOT, wanted_code: int = 0
) -> Taken:
    began = time.monotonic()
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, cwd=cwd
    )
    output = process.stdout.read() if process.stdout else ""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != wanted_code:
        raise SystemExit(f"{' '.join(words)} ended with {process.returncode}:\n{output}")
    return Taken(time.monotonic() - began, usage.ru_maxrss / 1024, output)


def show(name: str, seconds: Sequence[float], rss_mb: Sequence[float], wanted: str) -> None:
    middle = f"{statistics.median(seconds):.2f} | {min(seconds):.2f} to {max(seconds):.2f}"
    print(f"| {name} | {middle} | {max(rss_mb):.0f} | {wanted} |", flush=True)


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
    with free_topology() as topology, tempfile.TemporaryDirectory() as folder:
        lab = Lab(topology)
        try:
            lab.up()
            admin = AdminHome(lab, Path(folder)).create()
            write_inventory(admin)
            rounds = [one_round(admin) for _ in range(runs)]
            write_inventory(admin, recipe={"env": {"LAB_RAY_REFUSE_JOIN_ON": topology.nodes[1].fabric_ip}})
            never = deploy(admin, "up", "--output", "json", wanted_code=1)
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
    named_s = seconds_until_failure(never.output)
    show("`up` with a worker that never joins, until that is named", [named_s], [never.rss_mb], "≤ 30 s")
    show("… until both nodes are empty again", [never.seconds], [never.rss_mb], "")


def deploy(admin: AdminHome, *arguments: str, wanted_code: int = 0) -> Taken:
    words = admin.command([*spark_deploy_program(), *arguments])
    return run(words, env=admin.environment(), cwd=admin.home, wanted_code=wanted_code)


def one_round(admin: AdminHome) -> dict[str, Taken]:
    up = deploy(admin, "up", "--output", "json")
    return {
        "`up` on the stub lab": up,
        "… of it beyond the engine's own start": Taken(up.seconds - engine_seconds(up.output), up.rss_mb, ""),
        "`up` again, unchanged": deploy(admin, "up"),
        "`status`": deploy(admin, "status"),
        "`down`": deploy(admin, "down"),
    }


def events(output: str) -> list[dict[str, Any]]:
    """Standard error is among the lines: an error is told there, too."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def engine_seconds(output: str) -> float:
    """From the first sight of the engine's start to the first of serving, on the head."""
    times: dict[str, float] = {}
    for event in events(output):
        if event["node"] == "spark-a":
            times.setdefault(event["data"].get("phase", ""), event["at"])
    return times["serving"] - times["starting-engine"]


def seconds_until_failure(output: str) -> float:
    times = {event["kind"]: event["at"] for event in events(output)}
    return float(times["action-failed"] - times["started"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--no-lab", action="store_true")
    options = parser.parse_args()
    machine = f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, {options.runs} runs"
    print(f"spark-deploy {__version__}, {datetime.now(timezone.utc):%Y-%m-%d}, {machine}:\n")
    print("| command | median s | min to max s | peak MB | wanted |\n|---|---|---|---|---|")
    offline(options.runs)
    if not options.no_lab:
        on_the_lab(options.runs)


if __name__ == "__main__":
    main()
