"""
`make demo`: a pair on this machine, from nothing to a served model and back.

Two nodes in network namespaces, each with its own sshd and Docker engine; real Ray and vLLM (CPU build) with a
tiny model, or the stub engine where that build cannot be had. Every command is one a user would type.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from orchestrator.errors import Exit
from tests.lab import engine
from tests.lab.admin import AdminHome, spark_deploy_program
from tests.lab.claim import free_topology
from tests.lab.inventory import REAL_RECIPE, write_inventory
from tests.lab.lab import Lab
from tests.lab.requirements import lab_available

ASK = (
    "curl --silent --show-error --no-buffer http://{address}:8000/v1/chat/completions --header 'content-type: application/json' "
    '--data \'{{"model": "{model}", "max_tokens": 24, "messages": [{{"role": "user", "content": "Hello, how are you?"}}]}}\''
)


# Small: a CPU runs the model, and it holds 512 tokens.
SWEEP = "spark-deploy bench --levels 1,2,4 --input-tokens 64 --output-tokens 48 --requests 12 --output plain"


class Demo:
    """The steps, each shown before it runs and with the seconds it took after."""

    def __init__(self, admin: AdminHome) -> None:
        self.admin = admin
        self.done: list[str] = []

    def say(self, text: str) -> None:
        print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}", flush=True)

    def type(self, line: str, *, also: int = 0) -> None:
        """Run *line* on the admin's laptop; end the demo when it fails, but for the exit code *also*."""
        self.say(f"$ {line}")
        words = shlex.split(line)
        if words[0] == "spark-deploy":
            words = [*spark_deploy_program(), *words[1:]]
        began = time.monotonic()
        ended = subprocess.run(
            self.admin.command(words),
            cwd=self.admin.home,
            env=self.admin.environment({"TERM": os.environ.get("TERM", "dumb")}),
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if ended.returncode not in (0, also):
            raise SystemExit(f"`{line}` ended with exit code {ended.returncode}")
        self.done.append(f"{time.monotonic() - began:7.1f} s  {shorten(line)}")


def shorten(line: str) -> str:
    return line if len(line) < 90 else f"{line[:86]} …"


def main() -> None:
    if reason := lab_available():
        raise SystemExit(f"no demo here: {reason}")
    began = time.monotonic()
    print("The engine: real Ray and vLLM (a first installation takes some minutes) …", flush=True)
    cannot = engine.install()
    if cannot:
        print(f"{cannot}\nso this demo uses the stub engine: the same commands and log lines, no model.")
    with free_topology() as topology, tempfile.TemporaryDirectory(prefix="spark-deploy-demo-") as folder:
        lab = Lab(topology)
        try:
            lab.up(real_engine=not cannot)
            play(Demo(AdminHome(lab, Path(folder)).create()), real=not cannot, began=began)
        finally:
            lab.down()


def play(demo: Demo, *, real: bool, began: float) -> None:
    admin = demo.admin
    model = "tiny" if real else "stub"
    recipe = REAL_RECIPE if real else {}
    write_inventory(
        admin, recipe=recipe, recipe_name=model, api={"bind": "0.0.0.0"}, transport="tcp", name="demo"
    )
    admin.trust()  # nothing yet
    head, worker = admin.lab.topology.nodes
    demo.say("# The machines know each other's addresses; this laptop does not know their host keys yet.")
    for node in (head, worker):
        demo.type(f"spark-deploy trust {node.name} --fingerprint {admin.fingerprint(node.key)}")
    demo.type("cat spark-deploy.yaml")
    demo.type("spark-deploy render --out rendered")
    demo.type("cat rendered/spark-a/run.sh")
    demo.type("spark-deploy up --output plain")
    bytes_before = admin.lab.fabric_bytes(head.key)
    demo.type(ASK.format(address=head.address, model=model))
    print()
    demo.type(
        SWEEP, also=Exit.INVALID
    )  # this machine is nodes, engine and client at once: it may be too late
    crossed = admin.lab.fabric_bytes(head.key) - bytes_before
    demo.type("spark-deploy up --output plain")
    demo.type("spark-deploy status")
    demo.type("spark-deploy down --output plain")
    left = [line for node in (head, worker) for line in admin.lab.leftovers(node.key)]
    demo.type("spark-deploy runs")
    demo.say(
        f"# Done in {time.monotonic() - began:.0f} s, with {'real Ray and vLLM' if real else 'the stub engine'}:"
    )
    print("\n".join(demo.done))
    print(
        f"{crossed / 1e6:.2f} MB crossed the fabric for these completions; left on the nodes: {left or 'nothing'}"
    )
    if left:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
