"""The stub's `gcs_server`: who is in the cluster, who uses its GPUs. One per cluster, on the head."""

from __future__ import annotations

import contextlib
import socketserver
import sys
import threading
from typing import Any

from .faults import Faults
from .wire import Line, Message, auth_required, token
from .words import call_me, core_line, say

MISSED = (
    "The node with node id: {id} and address: {ip} and node name: {ip} has been marked dead because the detector has "
    "missed too many heartbeats from it. This can happen when a \t(1) raylet crashes unexpectedly (OOM, etc.) \n"
    "\t(2) raylet has lagging heartbeats due to slow network or busy workload."
)
TERMINATED = (
    "Raylet is terminated. Termination is unexpected. Possible reasons include: (1) SIGKILL by the user or system OOM "
    "killer, (2) Invalid memory access from Raylet causing SIGSEGV or SIGBUS, (3) Other termination signals. Last 20 "
    "lines of the Raylet logs:"
)


class Cluster:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.nodes: dict[str, Message] = {}
        self.raylets: dict[str, Line] = {}
        self.drivers: list[Line] = []
        self.used: dict[str, float] = {}

    def alive(self) -> list[Message]:
        return [node for node in self.nodes.values() if node["state"] == 0]

    def snapshot(self) -> Message:
        with self.lock:
            return {"nodes": list(self.nodes.values()), "used": float(sum(self.used.values()))}

    def join(self, node: Message, line: Line) -> None:
        with self.lock:
            self.nodes[node["id"]] = {**node, "state": 0}
            self.raylets[node["id"]] = line

    def lose(self, node_id: str, why: str) -> None:
        with self.lock:
            node = self.nodes[node_id]
            node["state"] = 1
            self.raylets.pop(node_id, None)
            for driver in self.drivers:
                with contextlib.suppress(OSError):
                    driver.send(
                        {"event": "node-dead", "node": node_id, "ip": node["ip"], "why": why.format(**node)}
                    )

    def reserve(self, gpus: int) -> list[Message]:
        """Nodes for *gpus* ranks, the head first; none when there are not enough."""
        with self.lock:
            free = [
                node
                for node in self.alive()
                if node["resources"].get("GPU", 0) - self.used.get(node["id"], 0) >= 1
            ]
            chosen = sorted(free, key=lambda node: not node["head"])[:gpus]
            if len(chosen) < gpus:
                return []
            for node in chosen:
                self.used[node["id"]] = self.used.get(node["id"], 0) + 1
            return chosen

    def release(self, nodes: list[Message]) -> None:
        with self.lock:
            for node in nodes:
                self.used[node["id"]] -= 1

    def tell(self, node_id: str, message: Message) -> None:
        with self.lock, contextlib.suppress(OSError, KeyError):
            self.raylets[node_id].send(message)


class Handler(socketserver.BaseRequestHandler):
    server: Server

    def handle(self) -> None:
        line = Line(self.request)
        message = line.receive()
        if message is None:
            return
        with contextlib.suppress(OSError):
            if auth_required() and message.get("token") != token():
                line.send({"error": "InvalidAuthToken"})
                return
            {"nodes": self._nodes, "register": self._raylet, "drive": self._driver}[message["op"]](
                line, message
            )

    def _nodes(self, line: Line, _: Message) -> None:
        line.send(self.server.cluster.snapshot())

    def _raylet(self, line: Line, message: Message) -> None:
        node, cluster = message["node"], self.server.cluster
        line.connection.settimeout(self.server.faults.ray_dead_after_s)
        line.send({})
        cluster.join(node, line)
        why = self._listen(line)
        say(core_line(why.format(**node), "gcs_node_manager.cc:512", "I"))
        cluster.lose(node["id"], why)

    @staticmethod
    def _listen(line: Line) -> str:
        """Return when a raylet is gone, with the reason."""
        try:
            while line.reader.readline():
                pass
        except TimeoutError:
            return MISSED
        except OSError:
            pass
        return TERMINATED

    def _driver(self, line: Line, message: Message) -> None:
        """A driver's job: its GPUs, its ranks, news of dead nodes; all of it ends with the connection."""
        cluster = self.server.cluster
        chosen = cluster.reserve(message["gpus"])
        line.send({"nodes": chosen})
        if not chosen:
            return
        line.connection.settimeout(None)
        cluster.drivers.append(line)
        try:
            while order := line.receive():
                cluster.tell(order["node"], order)
        finally:
            cluster.drivers.remove(line)
            cluster.release(chosen)
            for node in chosen:
                cluster.tell(node["id"], {"op": "kill"})


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port: int) -> None:
        super().__init__(("0.0.0.0", port), Handler)  # as the real one, whatever --node-ip-address says
        self.cluster = Cluster()
        self.faults = Faults()

    def handle_error(self, request: Any, client_address: Any) -> None:
        say(core_line(f"connection from {client_address}: {sys.exc_info()[1]}", "gcs_server.cc:1"))


def main(port: int) -> None:
    call_me("gcs_server")
    with Server(port) as server:
        say(core_line(f"GCS server started on port {port}", "gcs_server.cc:300", "I"))
        server.serve_forever(poll_interval=0.5)


if __name__ == "__main__":
    main(int(sys.argv[1]))
