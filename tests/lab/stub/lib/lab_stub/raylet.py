"""The stub's `raylet`: one per node; tells the GCS that it lives, starts and kills ranks."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time

from .faults import Faults
from .wire import Line, Message, dial, keep_alive
from .words import call_me, core_line, say

# seconds without a GCS until a raylet ends itself (gcs_rpc_server_reconnect_timeout_s)
RECONNECT_S = 60


def main(address: str, node: Message) -> None:
    call_me("raylet")
    faults = Faults()
    line = keep_alive(dial(address, {"op": "register", "node": node})[0])
    print("registered", file=sys.stderr, flush=True)
    threading.Thread(target=_beat, args=(line, min(1, faults.ray_dead_after_s / 5)), daemon=True).start()
    ranks: list[subprocess.Popen[bytes]] = []
    while order := line.receive():
        if order["op"] == "spawn":
            ranks.append(_spawn(order, node))
        elif order["op"] == "kill":
            _kill(ranks)
    time.sleep(RECONNECT_S)
    say(
        core_line(
            f"Failed to connect to GCS within {RECONNECT_S} seconds. GCS may have been killed.",
            "rpc_client.h:204",
        )
    )
    _kill(ranks)
    os._exit(1)


def _beat(line: Line, every_s: float) -> None:
    with contextlib.suppress(OSError):
        while True:
            line.send({})
            time.sleep(every_s)


def _spawn(order: Message, node: Message) -> subprocess.Popen[bytes]:
    """A rank's environment is that of `ray start` on its own node; the driver's only fills gaps."""
    environment = {**order["environment"], **os.environ}
    command = [
        "ray::RayWorkerProc",
        "-m",
        "lab_stub.rank",
        order["engine"],
        str(order["rank"]),
        json.dumps(node),
    ]
    say(core_line(f"Started worker process for rank {order['rank']}", "worker_pool.cc:564", "I"))
    # its standard input is the thread of life: it ends with this raylet
    return subprocess.Popen(
        command, executable=sys.executable or "/usr/bin/python3", env=environment, stdin=subprocess.PIPE
    )


def _kill(ranks: list[subprocess.Popen[bytes]]) -> None:
    for rank in ranks:
        rank.kill()
        rank.wait()
    ranks.clear()


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
