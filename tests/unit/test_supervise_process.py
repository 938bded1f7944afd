"""supervise.py as processes: two containers' worth of pid namespaces on loopback, with a stand-in engine."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.assets import templates

ENGINE = Path(__file__).parent.parent / "fixtures" / "engine"
TOKEN = "5ec4e7" * 10 + "beef"
LIMITS = {
    "link_lost_s": 1,
    "peer_timeout_s": 6,
    "hang_s": 30,
    "probe_s": 5,
    "join_limit_s": 12,
    "attempts": 3,
}


def _can_isolate() -> bool:
    argv = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    return (
        shutil.which("unshare") is not None
        and subprocess.run(argv, capture_output=True, check=False).returncode == 0
    )


pytestmark = pytest.mark.skipif(
    not _can_isolate(), reason="needs root: supervise.py runs in a pid namespace of its own"
)


def free_port(kind: int) -> int:
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Node:
    """One container's worth: a pid namespace, its own /tmp and /dev/shm, release/ and run/."""

    def __init__(self, base: Path, settings: dict[str, Any], ray: list[str], serve: list[str]) -> None:
        self.base = base
        self.run = base / "run"
        for folder in ("release", "run", "tmp"):
            (base / folder).mkdir(parents=True)
        shutil.copytree(ENGINE, base / "engine")
        shutil.copy(templates() / "supervise.py", base / "release")
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(templates() / "supervisor", base / "release/supervisor", ignore=ignored)
        (base / "release" / "supervise.json").write_text(json.dumps(settings))
        (base / "release" / "manifest.json").write_text("{}")
        (base / "release" / "ray.args").write_text("\n".join(ray) + "\n")
        (base / "release" / "serve.args").write_text("\n".join(serve) + "\n")
        (self.run / "secrets.env").write_text(f"VLLM_API_KEY=hunter2-hunter2\nSPARK_DEPLOY_TOKEN={TOKEN}\n")
        self.env: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        inside = Path("/mnt")
        script = (
            f"mount --bind {self.base} {inside} && mount --bind {inside}/tmp /tmp && mount -t tmpfs shm /dev/shm && "
            f"exec {Path(sys.executable).resolve()} {inside}/release/supervise.py"
        )
        # A virtual environment or a current folder below /tmp would be out of sight in there.
        env = {
            "PATH": f"{inside}/engine/bin:{os.environ['PATH']}",
            "PYTHONPATH": f"{inside}/engine/lib",
            "SPARK_DEPLOY_BASE": str(inside),
            "TEST_NODE": str(self.base),
        }
        with (self.base / "log").open("ab") as log:
            argv = [
                "unshare",
                "--pid",
                "--fork",
                "--mount-proc",
                "--mount",
                "--kill-child=KILL",
                "sh",
                "-c",
                script,
            ]
            self.process = subprocess.Popen(argv, cwd="/", env=env | self.env, stdout=log, stderr=log)

    def state(self) -> dict[str, Any]:
        path = self.run / "state.json"
        return dict(json.loads(path.read_text())) if path.exists() else {}

    def log(self) -> str:
        return (self.base / "log").read_text()

    def processes(self, what: str) -> list[int]:
        """Pids, as this test sees them, of the node's processes with *what* in their command line."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                ours = f"TEST_NODE={self.base}\0".encode() in (entry / "environ").read_bytes()
                if ours and what.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue  # it has gone, or is not ours to look at
        return found

    def kill(self, what: str) -> None:
        for pid in self.processes(what):
            os.kill(pid, signal.SIGKILL)

    def stop(self) -> int:
        """Tell the supervisor to end, as `docker stop` does; give its exit code."""
        assert self.process
        for pid in self.processes("supervise.py"):
            os.kill(pid, signal.SIGTERM)
        return self.process.wait(timeout=10)

    def power_cut(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            eventually(lambda: not self.processes(""), "all processes gone")


def eventually(holds: Callable[[], object], what: str, limit_s: float = 20) -> None:
    deadline = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < deadline, f"not in {limit_s} s: {what}"
        time.sleep(0.05)


class Pair:
    """A head on 127.0.0.1 and a worker on 127.0.0.2."""

    def __init__(self, base: Path) -> None:
        ray_port, api_port = free_port(socket.SOCK_STREAM), free_port(socket.SOCK_STREAM)
        beat_port = free_port(socket.SOCK_DGRAM)
        ips = {"spark-1": "127.0.0.1", "spark-2": "127.0.0.2"}

        def node(name: str, ray: list[str]) -> Node:
            settings = {
                "schema": 1,
                "deployment": "home",
                "node": name,
                "role": "head" if name == "spark-1" else "worker",
                "fabric_ip": ips[name],
                "interface": "lo",
                "peers": [{"node": peer, "fabric_ip": ip} for peer, ip in ips.items() if peer != name],
                "head_ip": ips["spark-1"],
                "ray_port": ray_port,
                "heartbeat_port": beat_port,
                "api": {"host": "127.0.0.1", "port": api_port},
                "served_name": "tiny",
                "model": "org/tiny",
                "transport": "tcp",
                "limits": LIMITS,
            }
            serve = ["org/tiny", "--host=127.0.0.1", f"--port={api_port}"]
            return Node(base / name, settings, [*ray, f"--node-ip-address={ips[name]}", "--block"], serve)

        self.head = node("spark-1", ["--head", f"--port={ray_port}"])
        self.worker = node("spark-2", [f"--address={ips['spark-1']}:{ray_port}"])
        self.nodes = (self.head, self.worker)

    def start(self) -> None:
        for node in self.nodes:
            node.start()

    def phases(self) -> tuple[str, str]:
        return tuple(node.state().get("phase", "") for node in self.nodes)  # type: ignore[return-value]

    def wait_for(self, head: str, worker: str) -> None:
        try:
            eventually(lambda: self.phases() == (head, worker), f"{head} and {worker}")
        except AssertionError as late:
            logs = "\n".join(f"--- {node.base.name}\n{node.log()}" for node in self.nodes)
            raise AssertionError(f"{late}; it is {self.phases()}\n{logs}") from None

    def session(self) -> str:
        return str(self.head.state()["session"])


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    for node in pair.nodes:
        node.power_cut()


def test_a_pair_comes_up_serving_on_both_nodes(pair: Pair) -> None:
    """
    The head has proved it by a completion; the worker says what the head says.
    """
    pair.start()

    pair.wait_for("serving", "serving")


def test_running_leaves_the_release_as_it_was_uploaded(pair: Pair) -> None:
    """
    No __pycache__: what lies there is what was rendered, also where the folder is writable.
    """
    before = sorted(pair.head.base.glob("release/**/*"))
    pair.start()
    pair.wait_for("serving", "serving")

    assert sorted(pair.head.base.glob("release/**/*")) == before


def test_pair_still_hears_each_other_when_the_secrets_are_deleted(pair: Pair) -> None:
    """
    The heartbeat's key stays in memory: a file deleted by hand must not silence a serving pair.
    """
    pair.start()
    pair.wait_for("serving", "serving")
    (pair.worker.run / "secrets.env").unlink()
    deleted = time.time()

    later_s = 2.5 * LIMITS["link_lost_s"]
    eventually(lambda: pair.head.state()["at"] > deleted + later_s, "a newer state")
    assert "link-lost" not in pair.head.log(), pair.head.log()


def test_killed_engine_restarts_the_ray_of_both_nodes(pair: Pair) -> None:
    """
    Ranks of two sessions never serve together: the worker's Ray is another process afterwards.
    """
    pair.start()
    pair.wait_for("serving", "serving")
    old, rays = pair.session(), pair.worker.processes("engine/bin/ray")

    pair.head.kill("bin/vllm")
    eventually(lambda: pair.session() not in ("", old), "a new session")
    pair.wait_for("serving", "serving")

    assert not set(rays) & set(pair.worker.processes("engine/bin/ray"))
    assert pair.head.state()["attempts"] == 1
    assert "vllm exited with -9" in pair.head.state()["cause"]
    assert len(pair.head.processes("EngineCore")) == 1, "the old engine's child is gone"


def test_killed_ray_of_the_worker_is_the_heads_cause(pair: Pair) -> None:
    pair.start()
    pair.wait_for("serving", "serving")
    old = pair.session()

    pair.worker.kill("engine/bin/ray")
    eventually(lambda: pair.session() not in ("", old), "a new session")
    pair.wait_for("serving", "serving")

    assert (pair.head.state()["cause_node"], pair.head.state()["cause"]) == ("spark-2", "ray exited with -9")


def test_worker_that_never_joins_is_named_with_its_own_log_lines(pair: Pair) -> None:
    """
    `ray start` fails over there; the operator reads why on the head. Before a first ready it is not tried again.
    """
    pair.worker.env = {"FAKE_RAY_REFUSES": "1"}
    pair.start()
    pair.wait_for("gave-up", "waiting-head")

    state = pair.head.state()
    assert state["cause_node"] == "spark-2"
    assert "Failed to connect to GCS within 5 seconds" in state["last_lines"][-1]


def test_first_start_that_fails_gives_up_with_the_engines_own_words(pair: Pair) -> None:
    """
    Not the last line of the log, which says to look above.
    """
    pair.head.env = {"FAKE_VLLM_FAILS": "1"}
    pair.start()
    pair.wait_for("gave-up", "waiting-head")

    assert pair.head.state()["cause"].endswith("ValueError: No available memory for the cache blocks.")
    assert "EngineCore failed to start" in (pair.head.run / "evidence" / "1" / "vllm.log").read_text()
    assert not pair.head.processes("engine/bin")


def test_stopped_container_ends_its_children_and_itself(pair: Pair) -> None:
    """
    `docker stop` waits 30 s; we are gone in a few, with exit code 0.
    """
    pair.start()
    pair.wait_for("serving", "serving")

    assert pair.head.stop() == 0
    assert not pair.head.processes("")


def test_power_cut_of_the_worker_heals_without_costing_its_place(pair: Pair) -> None:
    """
    A restarted supervisor is another incarnation: it never rejoins the session it was in.
    """
    pair.start()
    pair.wait_for("serving", "serving")
    old = pair.session()

    pair.worker.power_cut()
    pair.worker.start()
    eventually(lambda: pair.session() not in ("", old), "a new session")
    pair.wait_for("serving", "serving")

    assert pair.worker.state()["session"] == pair.session()


def test_down_in_run_desired_ends_everything_and_up_brings_it_back(pair: Pair) -> None:
    pair.start()
    pair.wait_for("serving", "serving")

    (pair.head.run / "desired").write_text("down\n")
    pair.wait_for("down", "waiting-head")
    assert not pair.head.processes("engine/bin")

    (pair.head.run / "desired").write_text("up run-2\n")
    pair.wait_for("serving", "serving")
    assert pair.head.state()["run"] == "run-2"


BUSY = """
import subprocess, sys
sys.path.insert(0, sys.argv[1])
from supervisor.processes import ActivityMeter
work = "sum(range(10**7)); open('/dev/zero', 'rb').read(10**7); print(flush=True); input()"
child = subprocess.Popen([sys.executable, "-c", work], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
meter = ActivityMeter()
print(meter.measure())
child.communicate(b"\\n")
print(meter.measure())
"""


def test_busy_process_is_active_and_one_that_has_gone_keeps_its_share() -> None:
    """
    Else a compiler's end would look as if nothing had been computed.
    """
    argv = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", BUSY, str(templates())]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)

    there, gone = [
        {key: float(value) for key, value in re.findall(r"(\w+)=([\d.]+)", line)}
        for line in done.stdout.splitlines()
    ]
    assert there["read_bytes"] > 1e7
    assert there["cpu_s"] > 0
    assert gone == there


def test_secrets_are_struck_out_of_the_log_and_the_key_is_used(pair: Pair) -> None:
    pair.start()
    pair.wait_for("serving", "serving")

    assert "[vllm] the key is ***" in pair.head.log()
    assert "hunter2" not in pair.head.log()
