"""The stub's `ray` command: start, and status as the supervisor's evidence keeps it."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from . import RAY_VERSION
from .faults import Faults
from .wire import NO_TOKEN, Message, UnauthenticatedError, ask, auth_required, token
from .words import core_line, fail, ray_line, say

if TYPE_CHECKING:
    from collections.abc import Sequence

TMP = Path("/tmp/ray")
CURRENT = TMP / "ray_current_cluster"
MEMORY = 24288000000.0
NO_CLUSTER = (
    "ConnectionError: Could not find any running Ray instance. Please specify the one to connect to by setting the "
    "`--address` flag or `RAY_ADDRESS` environment variable."
)
ALREADY = (
    "ConnectionError: Ray is trying to start at {0}, but is already running at {0}. Please specify a different port using "
    "the `--port` flag of `ray start` command."
)
Children = dict[str, "subprocess.Popen[bytes]"]


def main(argv: Sequence[str]) -> int:
    if list(argv) == ["--version"]:
        say(f"ray, version {RAY_VERSION}")
        return 0
    options = _parser().parse_args(argv)
    if auth_required() and not token():
        fail(f"ray.exceptions.AuthenticationError: {NO_TOKEN}. ")
    return int(options.action(options) or 0)


def _parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="ray")
    commands = top.add_subparsers(required=True)
    start = commands.add_parser("start")
    start.set_defaults(action=_start)
    for flag in ("--head", "--block", "--disable-usage-stats", "--no-monitor", "-v", "--verbose"):
        start.add_argument(flag, action="store_true")
    values = (
        "address node-ip-address num-cpus num-gpus object-store-memory include-dashboard dashboard-host dashboard-port "
        "resources labels memory temp-dir min-worker-port max-worker-port node-manager-port object-manager-port "
        "ray-client-server-port runtime-env-agent-port dashboard-agent-grpc-port dashboard-agent-listen-port "
        "metrics-export-port worker-port-list log-style log-color"
    )
    for name in values.split():
        start.add_argument(f"--{name}")
    start.add_argument("--port", default="6379")
    status = commands.add_parser("status")
    status.add_argument("--address")
    status.set_defaults(action=_status)
    return top


# --- start --------------------------------------------------------------------------------------------


def _start(options: argparse.Namespace) -> None:
    faults = Faults()
    ip = (
        (options.head and faults.ray_ip)
        or options.node_ip_address
        or socket.gethostbyname(socket.gethostname())
    )
    address = f"{ip}:{options.port}" if options.head else options.address
    _prelude(ip, head=options.head)
    if not options.head:
        _reach(address, ip, faults)
    session = _session(address)
    children = _launch(options, ip, address, session)
    time.sleep(faults.ray_start_s)
    _banner(options, ip, address, session)
    if options.block:
        _block(children, session)


def _prelude(ip: str, *, head: bool) -> None:
    if not auth_required():
        warning = "Token authentication is disabled for this Ray cluster. Anyone with network access to the cluster can run"
        say(
            ray_line(
                f"{warning} arbitrary code and access its data.",
                "WARNING",
                "authentication_token_setup.py:73",
            )
        )
    if head and os.environ.get("RAY_USAGE_STATS_ENABLED") == "0":
        say(ray_line("Usage stats collection is disabled.", source="usage_lib.py:448"))
    say(ray_line(f"Local node IP: {ip}", source="scripts.py:1043" if head else "scripts.py:1234"))


def _reach(address: str, ip: str, faults: Faults) -> None:
    """Block until the head answers: for ever when it does not, as the real one."""
    while True:
        why = "Timed out while waiting for GCS to become available."
        try:
            if faults.ray_refuse_join_on != ip:
                ask(address, {"op": "nodes"})
                return
            time.sleep(1)
        except UnauthenticatedError:
            why = "RPC error: InvalidAuthToken: Authentication token is missing or incorrect"
            say(
                core_line(
                    f"Failed to get cluster ID from GCS server: Unauthenticated: {why}", "gcs_client.cc:210"
                )
            )
            time.sleep(1)
            continue
        except OSError:
            time.sleep(1)
        say(core_line(f"Failed to connect to GCS at address {address} within 5 seconds.", "rpc_client.h:153"))
        say(core_line(f"Failed to get cluster ID from GCS server: TimedOut: {why}", "gcs_client.cc:210"))


def _session(address: str) -> Path:
    name = (
        time.strftime("session_%Y-%m-%d_%H-%M-%S_") + f"{time.time_ns() // 1000 % 1000000:06}_{os.getpid()}"
    )
    session = TMP / name
    (session / "logs").mkdir(parents=True)
    latest = TMP / "session_latest"
    latest.unlink(missing_ok=True)
    latest.symlink_to(session)
    CURRENT.write_text(address)
    return session


def _launch(options: argparse.Namespace, ip: str, address: str, session: Path) -> Children:
    children: Children = {}
    local = address
    if options.head:
        # the GCS listens on every address; LAB_RAY_IP need not be one of this node
        local = f"127.0.0.1:{options.port}"
        children["gcs_server"] = _spawn(session, "gcs_server", "lab_stub.gcs", options.port)
        _wait_for_gcs(children["gcs_server"], local, address)
    children["raylet"] = _spawn(session, "raylet", "lab_stub.raylet", local, json.dumps(_node(options, ip)))
    return children


def _spawn(session: Path, name: str, module: str, *arguments: str) -> subprocess.Popen[bytes]:
    logs = session / "logs"
    with (logs / f"{name}.out").open("ab") as out, (logs / f"{name}.err").open("ab") as err:
        return subprocess.Popen(
            [name, "-m", module, *arguments],
            executable=sys.executable or "/usr/bin/python3",
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )


def _wait_for_gcs(gcs: subprocess.Popen[bytes], local: str, address: str) -> None:
    while gcs.poll() is None:
        with contextlib.suppress(OSError):
            ask(local, {"op": "nodes"})
            return
        time.sleep(0.01)
    fail(ALREADY.format(address))


def _node(options: argparse.Namespace, ip: str) -> Message:
    gpus = float(options.num_gpus or json.loads(os.environ.get("RAY_OVERRIDE_RESOURCES", "{}")).get("GPU", 0))
    resources = {
        "CPU": float(options.num_cpus or os.cpu_count() or 1),
        "memory": MEMORY,
        "object_store_memory": float(options.object_store_memory or 100000000),
        f"node:{ip}": 1.0,
    }
    if gpus:
        resources["GPU"] = gpus
    if options.head:
        resources["node:__internal_head__"] = 1.0
    return {"id": secrets.token_hex(28), "ip": ip, "head": options.head, "resources": resources}


def _banner(options: argparse.Namespace, ip: str, address: str, session: Path) -> None:
    line = 1084 if options.head else 1250
    for offset, text in enumerate(("--------------------", "Ray runtime started.", "--------------------")):
        say(ray_line(text, "SUCC", f"scripts.py:{line + offset}"))
    if options.head:
        say(ray_line("Next steps", source="scripts.py:1088"))
        say(ray_line("To add another node to this Ray cluster, run", source="scripts.py:1092"))
        say(ray_line(f"  ray start --address='{address}'", source="scripts.py:1095"))
        say(ray_line("To connect to this Ray cluster:", source="scripts.py:1106"))
        say(ray_line(f"ray.init(_node_ip_address='{ip}')", source="scripts.py:1109"))
    say(ray_line("To terminate the Ray runtime, run", source="scripts.py:1142"))
    say(ray_line("  ray stop", source="scripts.py:1143"))
    if options.block:
        say(ray_line("--block", source="scripts.py:1265"))
        say(
            ray_line(
                "This command will now block forever until terminated by a signal.", source="scripts.py:1266"
            )
        )
        exits = session / "logs/ray_process_exit.log"
        say(ray_line(f"Process exit logs will be saved to: {exits}", source="scripts.py:1274"))


def _block(children: Children, session: Path) -> NoReturn:
    def leave(*_: object) -> NoReturn:
        for child in children.values():
            child.kill()
        os._exit(0)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    while all(child.poll() is None for child in children.values()):
        time.sleep(0.5)
    say(ray_line("Some Ray subprocesses exited unexpectedly:", "ERR", "scripts.py:1307"))
    for name, child in children.items():
        if child.poll() is not None:
            say(ray_line(f"  {name} [exit code={child.returncode}]", "ERR", "scripts.py:87"))
            with (session / "logs/ray_process_exit.log").open("a") as log:
                log.write(
                    f"Some Ray subprocesses exited unexpectedly:\n  {name} [exit code={child.returncode}]\n"
                )
    say(ray_line("Remaining processes will be killed.", "ERR", "scripts.py:1315"))
    for child in children.values():
        child.kill()
    os._exit(1)


# --- status -------------------------------------------------------------------------------------------


def _cluster(options: argparse.Namespace) -> Message:
    stored = CURRENT.read_text() if CURRENT.exists() else ""
    address = options.address or os.environ.get("RAY_ADDRESS") or stored or fail(NO_CLUSTER)
    try:
        return ask(address, {"op": "nodes"})
    except UnauthenticatedError as error:
        fail(f"ray.exceptions.AuthenticationError: {error}")
    except OSError:
        fail(NO_CLUSTER)


def _status(options: argparse.Namespace) -> None:
    cluster = _cluster(options)
    nodes = [node for node in cluster["nodes"] if node["state"] == 0]
    cpus, gpus = (sum(node["resources"].get(kind, 0) for node in nodes) for kind in ("CPU", "GPU"))
    rule, used = "-" * 63, cluster["used"]
    micro = time.time_ns() // 1000 % 1000000
    say(f"======== Autoscaler status: {time.strftime('%Y-%m-%d %H:%M:%S')}.{micro:06} ========")
    say(f"Node status\n{rule}\nActive:")
    for node in nodes:
        say(f" 1 node_{node['id']}")
    say(f"Pending:\n (no pending nodes)\nRecent failures:\n (no failures)\n\nResources\n{rule}\nTotal Usage:")
    say(f" 0.0/{cpus} CPU")
    if gpus:
        reserved = f" ({used} used of {used} reserved in placement groups)" if used else ""
        say(f" {used}/{gpus} GPU{reserved}")
    say(f" 0B/{22.62 * len(nodes):.2f}GiB memory\n 0B/{95.37 * len(nodes):.2f}MiB object_store_memory\n")
    say("From request_resources:\n (none)\nPending Demands:\n (no resource demands)")
