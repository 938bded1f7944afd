"""The stub's EngineCore: gets its ranks from Ray, and steps them in lockstep, one token a step and request."""

from __future__ import annotations

import json
import os
import queue
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any, NoReturn

from .faults import Faults
from .wire import Line, Message, UnauthenticatedError, dial, keep_alive
from .words import call_me, ray_line, say, vllm_line

CURRENT = Path("/tmp/ray/ray_current_cluster")
STARTING = "core.py:1510"
RUNNING = "core.py:1512"
PADDING = "y" * 8192
WORKER_DIED = (
    "(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the "
    "problem, check the logs for the dead worker. Worker IP address: {ip} Worker PID: {pid} Worker exit type: SYSTEM_ERROR "
    "Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file."
)
OUT_OF_MEMORY = (
    "ray.exceptions.OutOfMemoryError: 1 worker(s) were killed due to the node running low on memory."
)
TRACE = """\
Traceback (most recent call last):
  File "/usr/local/lib/python3.12/dist-packages/vllm/v1/engine/core.py", line {line}, in run_engine_core
    {call}
  File "/usr/local/lib/python3.12/dist-packages/vllm/v1/executor/ray_executor_v2.py", line 456, in _init_executor
    ray.get(init_worker_refs)
{cause}"""


class EngineError(Exception):
    """The text is the last line of the traceback."""


class RankHandle:
    def __init__(self, line: Line, hello: Message, *, local: bool) -> None:
        self.line, self.rank, self.pid, self.ip = line, hello["rank"], hello["pid"], hello["ip"]
        where = "" if local else f", ip={self.ip}"
        self.prefix = f"(RayWorkerProc pid={self.pid}{where}) "
        self.memory_killed = False


class Engine:
    def __init__(self, job: Message, api: Line) -> None:
        self.job, self.api = job, api
        self.faults = Faults()
        self.world = job["world"]
        self.inbox: queue.Queue[tuple[str, Any]] = queue.Queue()
        self.ranks: dict[int, RankHandle] = {}
        self.waiting: dict[str, int] = {}
        self.running: dict[str, int] = {}
        self.steps = 0

    def log(self, text: str, source: str, level: str = "INFO") -> None:
        say(vllm_line("EngineCore", text, level, source))

    def read(self, kind: str, line: Line, mark: Any = None) -> None:
        """Everything that comes in on *line* goes into the one inbox; None at its end."""

        def pump() -> None:
            while message := line.receive():
                self.inbox.put((kind, (mark, message)))
            self.inbox.put((kind, (mark, None)))

        threading.Thread(target=pump, daemon=True).start()

    # --- start ------------------------------------------------------------------------------------

    def start(self) -> None:
        self.log(
            f"Initializing a V1 LLM engine (v0.32.0) with config: model='{self.job['model']}'", "core.py:133"
        )
        address = os.environ.get("RAY_ADDRESS") or (CURRENT.read_text().strip() if CURRENT.exists() else "")
        say(ray_line(f"Connecting to existing Ray cluster at address: {address}...", source="worker.py:1841"))
        driver, nodes = self._placement_group(address)
        say(ray_line("Connected to Ray cluster.", source="worker.py:2038"))
        self.read("gcs", driver)
        self._spawn(driver, nodes)
        started = time.monotonic()
        self._everywhere("load")
        self.log(
            "GPU KV cache size: 177,440 tokens, Maximum concurrency for 512 tokens per request: 346.56x",
            "kv_cache_utils.py:2327",
        )
        self._everywhere("capture")
        took = time.monotonic() - started
        self.log(f"init engine (profile, create kv cache, warmup model) took {took:.2f} s", "core.py:402")

    def _placement_group(self, address: str) -> tuple[Line, list[Message]]:
        self.log("No current placement group found. Creating a new placement group.", "ray_utils.py:607")
        started, warn_after = time.monotonic(), 10
        while True:
            try:
                line, answer = dial(address, {"op": "drive", "gpus": self.world})
            except UnauthenticatedError as error:
                raise EngineError(f"ray.exceptions.AuthenticationError: {error}") from error
            except (OSError, ValueError) as error:
                raise EngineError(
                    f"ConnectionError: Could not find any running Ray instance. {error}"
                ) from error
            if answer["nodes"]:
                return keep_alive(line), answer["nodes"]
            line.close()
            time.sleep(0.1)
            waited = time.monotonic() - started
            if waited > warn_after:
                warn_after *= 2
                self._warn_of_waiting(int(waited))

    def _warn_of_waiting(self, waited_s: int) -> None:
        specs = [{"GPU": 1.0}] * self.world
        advice = (
            "Check `ray status` and `ray list nodes` to see if you have enough resources, and make sure the IP addresses "
            "used by ray cluster are the same as VLLM_HOST_IP environment variable specified in each node if you are "
            "running on a multi-node."
        )
        text = (
            f"Waiting for creating a placement group of specs for {waited_s} seconds. specs={specs}. {advice}"
        )
        self.log(text, "ray_utils.py:484")

    def _spawn(self, driver: Line, nodes: list[Message]) -> None:
        own = os.environ.get("VLLM_HOST_IP") or nodes[0]["ip"]
        try:
            listener = socket.create_server((own, 0), backlog=16)
        except OSError as error:
            raise EngineError(f"RuntimeError: cannot bind to VLLM_HOST_IP {own}: {error}") from error
        address = f"{own}:{listener.getsockname()[1]}"
        keep = {
            key: value
            for key, value in os.environ.items()
            if key.startswith(("VLLM_", "NCCL_", "HF_", "LAB_"))
        }
        for rank, node in enumerate(nodes):
            order = {"op": "spawn", "node": node["id"], "rank": rank, "engine": address, "environment": keep}
            driver.send(order)
        job = {**self.job, "master": address}
        while len(self.ranks) < self.world:
            self._news()
            listener.settimeout(0.2)
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            line = keep_alive(Line(connection))
            hello = line.receive()
            if hello:
                line.send(job)
                self.ranks[hello["rank"]] = RankHandle(line, hello, local=hello["ip"] == nodes[0]["ip"])
                self.read("rank", line, hello["rank"])

    def _everywhere(self, order: str) -> None:
        """All ranks do *order*; EngineError when one fails or dies."""
        for rank in self.ranks.values():
            rank.line.send({"op": order})
        missing = set(self.ranks)
        while missing:
            number, message = self._next()
            if message and message.get("done") == order:
                missing.discard(number)

    def _news(self) -> None:
        while not self.inbox.empty():
            self._take(*self.inbox.get())

    def _next(self) -> tuple[Any, Message | None]:
        kind, item = self.inbox.get()
        return self._take(kind, item)

    def _take(self, kind: str, item: tuple[Any, Message | None]) -> tuple[Any, Message | None]:
        mark, message = item
        if kind == "rank":
            self._from_rank(self.ranks[mark], message)
        elif kind == "gcs":
            self._from_gcs(message)
        elif kind == "api":
            self._from_api(message)
        return mark, message

    # --- what the others say ------------------------------------------------------------------------

    def _from_rank(self, rank: RankHandle, message: Message | None) -> None:
        if message is None:
            self._rank_died(rank)
        elif "log" in message:
            say(rank.prefix + message["log"])
        elif "raylet" in message:
            rank.memory_killed = True
            say(f"(raylet, ip={rank.ip}) {message['raylet']}")
        elif "failed" in message:
            say(f"{rank.prefix}ERROR {message['failed']}")
            raise EngineError(message["failed"])

    def _rank_died(self, rank: RankHandle) -> NoReturn:
        if rank.memory_killed:
            raise EngineError(OUT_OF_MEMORY)
        say(WORKER_DIED.format(ip=rank.ip, pid=rank.pid))
        self._executor_down(rank.rank)

    def _executor_down(self, rank: int) -> NoReturn:
        text = f"RayWorkerProc rank=[{rank}] died unexpectedly, shutting down executor."
        self.log(text, "ray_executor_v2.py:522", "ERROR")
        raise EngineError("RuntimeError: cancelled")

    def _from_gcs(self, message: Message | None) -> None:
        if message is None:
            raise EngineError("ray.exceptions.RaySystemError: System error: GCS is not reachable")
        say(f"(raylet) {message['why']}")
        for rank in self.ranks.values():
            if rank.ip == message["ip"]:
                self._executor_down(rank.rank)

    def _from_api(self, message: Message | None) -> None:
        if message is None:  # the API server is gone; the real EngineCore lives on, too
            return
        if "add" in message:
            self.waiting[message["add"]] = message["tokens"]
        else:
            self.waiting.pop(message["abort"], None)
            self.running.pop(message["abort"], None)
        self._admit()

    # --- serving ----------------------------------------------------------------------------------

    def serve(self) -> None:
        self.read("api", self.api)
        self.api.send({"ready": True})
        due = time.monotonic()
        while True:
            if not self.running:
                self._next()
                due = time.monotonic()
                continue
            self._news()
            due = max(due + 1 / self.faults.tokens_per_s, time.monotonic() - 1)
            self._step()
            time.sleep(max(0.0, due - time.monotonic()))

    def _admit(self) -> None:
        while self.waiting and len(self.running) < self.job["max_num_seqs"]:
            name = next(iter(self.waiting))
            self.running[name] = self.waiting.pop(name)
        self._report([], [])

    def _report(self, tokens: list[str], done: list[str]) -> None:
        counts = {"running": len(self.running), "waiting": len(self.waiting), "steps": self.steps}
        try:
            self.api.send({"tokens": tokens, "done": done, **counts})
        except OSError:
            self.running.clear()

    def _step(self) -> None:
        self.steps += 1
        for rank in self.ranks.values():
            rank.line.send({"op": "step", "step": self.steps, "padding": PADDING})
        missing = set(self.ranks)
        while missing:
            number, message = self._next()
            if message and message.get("step") == self.steps and number in missing:
                missing.discard(number)
        tokens = list(self.running)
        for name in tokens:
            self.running[name] -= 1
        done = [name for name in tokens if self.running[name] <= 0]
        for name in done:
            del self.running[name]
        self._admit_after(tokens, done)

    def _admit_after(self, tokens: list[str], done: list[str]) -> None:
        self._report(tokens, done)
        if done and self.waiting:
            self._admit()


def traceback_lines(cause: str, *, starting: bool) -> list[str]:
    line, call = (
        (1482, "engine_core = EngineCoreProc(*args, engine_index=dp_rank, **kwargs)")
        if starting
        else (1496, "engine_core.run_busy_loop()")
    )
    return TRACE.format(line=line, call=call, cause=cause).splitlines()


def die(engine: Engine, error: Exception, *, starting: bool) -> NoReturn:
    """The last words of an EngineCore, in the order in which the real one says them."""
    source = STARTING if starting else RUNNING
    cause = str(error) if isinstance(error, EngineError) else f"{type(error).__name__}: {error}"
    title = "EngineCore failed to start." if starting else "EngineCore encountered a fatal error."
    trace = traceback_lines(cause, starting=starting)
    for line in (title, *trace):
        engine.log(line, source, "ERROR")
    say("\n".join(["Process EngineCore:", *trace]))
    os._exit(1)


def main(job: Message, api_fd: int) -> None:
    call_me("VLLM::EngineCor")
    engine = Engine(job, Line(socket.socket(fileno=api_fd)))
    starting = True
    try:
        engine.start()
        starting = False
        engine.serve()
    except (EngineError, OSError) as error:
        die(engine, error, starting=starting)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[2]))
