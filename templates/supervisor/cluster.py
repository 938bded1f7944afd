"""The Ray cluster, asked from outside."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# `ray status` names no addresses and `ray list nodes` needs the dashboard. In the image's own Python, in a child:
# GcsClient may block for ever, and is not made to be used twice in one process.
MEMBERS = """
import json, sys
try:
    from ray._raylet import GcsClient
    nodes = GcsClient(address=sys.argv[1]).get_all_node_info().values()
    members = [(n.node_manager_address, dict(n.resources_total).get("GPU", 0)) for n in nodes if n.state == 0]
except (ImportError, AttributeError, TypeError):
    import ray
    ray.init(address=sys.argv[1], log_to_driver=False)
    members = [(n["NodeManagerAddress"], n["Resources"].get("GPU", 0)) for n in ray.nodes() if n["Alive"]]
print(json.dumps(sorted(members)))
"""


def ray_members(address: str, env: Mapping[str, str], limit_s: float) -> list[tuple[str, float]]:
    """
    Address and GPUs of every living node of the Ray cluster.

    Raises:
        OSError, subprocess.SubprocessError, ValueError: Ray did not tell, with its last line.
    """
    argv = ["python3", "-c", MEMBERS, address]
    done = subprocess.run(argv, env=dict(env), capture_output=True, text=True, timeout=limit_s, check=False)
    if done.returncode:
        raise OSError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return [(ip, float(gpus)) for ip, gpus in json.loads(done.stdout.splitlines()[-1])]


def port_open(ip: str, port: int, limit_s: float) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((ip, port), limit_s):
        return True
    return False
