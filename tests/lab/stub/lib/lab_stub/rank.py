"""The stub's `ray::RayWorkerProc`: one rank; loads nothing, and answers each step of the engine over the fabric."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from .faults import Faults
from .wire import Message, dial, keep_alive
from .words import call_me, core_line, vllm_line

PADDING = "x" * 8192  # what a rank sends for one token; real TP=2: about 11 kB per token on the tiny model
GRAPHS = 10
MEMORY_KILL = (
    "1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID: "
    "{id}, IP: {ip}) over the last time period. To see more information about the Workers killed on this node, use `ray "
    "logs raylet.out -ip {ip}`"
)


class LoadError(Exception):
    """Loading failed; the text is the last line of the traceback."""


class Rank:
    def __init__(self, engine: str, rank: int, node: Message) -> None:
        self.rank, self.node = rank, node
        self.faults = Faults()
        hello = {"op": "rank", "rank": rank, "pid": os.getpid(), "ip": node["ip"]}
        line, self.job = dial(engine, hello)
        self.line = keep_alive(line)
        self.who = f"Worker_TP{rank}"

    def log(self, text: str, source: str, level: str = "INFO", who: str = "") -> None:
        self.line.send({"log": vllm_line(who or self.who, text, level, source)})

    def serve(self) -> None:
        while order := self.line.receive():
            if order["op"] == "step":
                self.line.send({"step": order["step"], "padding": PADDING})
            else:
                self._do(order["op"])

    def _do(self, order: str) -> None:
        try:
            {"load": self.load, "capture": self.capture}[order]()
        except LoadError as error:
            self.line.send({"failed": str(error)})
        else:
            self.line.send({"done": order})

    # --- loading ----------------------------------------------------------------------------------

    def load(self) -> None:
        checkpoint = find_checkpoint(self.job["model"])
        self._connect()
        self.log(f"Starting to load model {self.job['model']}...", "gpu_model_runner.py:5901")
        started = time.monotonic()
        self._weights(sorted(checkpoint.glob("*.safetensors")) or [checkpoint])
        took = time.monotonic() - started
        self.log(f"Loading weights took {took:.2f} seconds", "default_loader.py:501")
        self.log(
            f"Model loading took 60.93 GiB memory and {took + 0.17:.6f} seconds", "gpu_model_runner.py:6022"
        )

    def _connect(self) -> None:
        world, master, backend = (
            self.job["world"],
            self.job["master"],
            "gloo" if self._net() == "gloo" else "nccl",
        )
        init = f"world_size={world} rank={self.rank} local_rank=0 distributed_init_method=tcp://{master} backend={backend}"
        self.log(init, "parallel_state.py:1906", who="Worker")
        for text in nccl_lines(self._net(), self.rank, self.node["ip"], hang=bool(self.faults.nccl_hang)):
            self.line.send({"log": f"{os.uname().nodename}:{os.getpid()}:{os.getpid()} [0] NCCL INFO {text}"})
        if self.faults.nccl_hang:
            forever()
        assigned = (
            f"rank {self.rank} in world size {world} is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank"
        )
        self.log(f"{assigned} {self.rank}, EP rank N/A", "parallel_state.py:2350", who="Worker")

    def _net(self) -> str:
        named = os.environ.get("NCCL_IB_HCA") and os.environ.get("NCCL_IB_DISABLE", "0") == "0"
        return self.faults.net or ("IB" if named and Path("/dev/infiniband").exists() else "Socket")

    def _weights(self, shards: list[Path]) -> None:
        count, each_s = len(shards), 0.5 * self.faults.vllm_start_s / len(shards)
        for done in range(count + 1):
            if done == (count + 1) // 2:
                self._fail_at_weights()
            if self.rank == 0:  # tqdm runs on rank 0 alone, and begins each line with a carriage return
                left = f"{int(done * each_s) // 60:02}:{int(done * each_s) % 60:02}<00:00, {each_s:.2f}s/it"
                bar = f"Loading safetensors checkpoint shards: {100 * done // count:3}% Completed | {done}/{count} [{left}]"
                self.line.send({"log": f"\r{bar}"})
            if done < count:
                shards[done].stat()
                time.sleep(each_s)

    def _fail_at_weights(self) -> None:
        if self.faults.vllm_exit_at == "weights":
            header = "Error while deserializing header: incomplete metadata, file not fully covered"
            raise LoadError(f"safetensors_rust.SafetensorError: {header}")

    # --- compiling and graphs ---------------------------------------------------------------------

    def capture(self) -> None:
        if not self.job["eager"]:
            time.sleep(0.2 * self.faults.vllm_start_s)
            self.log("Dynamo bytecode transform time: 4.76 s", "backends.py:1128")
            self.log("Compiling a graph for compile range (1, 4096) takes 18.60 s", "backends.py:391")
            self.log("torch.compile took 25.60 s in total", "monitor.py:53")
            self.log("Available KV cache memory: 21.54 GiB", "gpu_worker.py:564")
            self._graphs()
        self._memory_monitor()
        if self.faults.vllm_exit_at == "graphs":
            asked = "Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 119.70 GiB of which 1.31 GiB is free."
            raise LoadError(f"torch.OutOfMemoryError: CUDA out of memory. {asked}")

    def _graphs(self) -> None:
        for done in range(GRAPHS + 1):
            if done == GRAPHS // 2:
                self._memory_monitor()
            if self.rank == 0:
                bar = f"Capturing CUDA graphs (mixed prefill-decode, PIECEWISE): {100 * done // GRAPHS:3}%"
                self.line.send(
                    {"log": f"\r{bar}|{'█' * done:{GRAPHS}}| {done}/{GRAPHS} [00:00<00:00,  8.31it/s]"}
                )
            time.sleep(0.3 * self.faults.vllm_start_s / GRAPHS)
        self.log("Graph capturing finished in 11 secs, took 0.66 GiB", "gpu_model_runner.py:6133")

    def _memory_monitor(self) -> None:
        """Ray's raylet kills a worker when the node's memory is 95 % full; a refresh of 0 ms switches that off."""
        on = os.environ.get("RAY_memory_monitor_refresh_ms", "250") != "0"  # noqa: SIM112  # Ray's own spelling
        if self.faults.ray_memory_kill and on and self.rank == self.job["world"] - 1:
            line = core_line("(raylet) " + MEMORY_KILL.format(**self.node), "node_manager.cc:3219", "E")
            self.line.send({"raylet": line, "memory": True})
            os.kill(os.getpid(), signal.SIGKILL)


def nccl_lines(net: str, rank: int, ip: str, *, hang: bool) -> list[str]:
    """What NCCL 2.28 says of its way; nothing unless NCCL_DEBUG=INFO, or where gloo does the work."""
    if net == "gloo" or os.environ.get("NCCL_DEBUG") != "INFO":
        return []
    interface = os.environ.get("NCCL_SOCKET_IFNAME", "eth0")
    start = [f"NCCL_SOCKET_IFNAME set to {interface}", f"Bootstrap: Using {interface}:{ip}<0>"]
    if hang:
        return start
    hcas = [hca.split(":")[0] for hca in os.environ.get("NCCL_IB_HCA", "").lstrip("=").split(",") if hca]
    using = " ".join(f"[{number}]{hca}:1/RoCE" for number, hca in enumerate(hcas))
    ways = {
        "IB": [f"NET/IB : Using {using} [RO]; OOB {interface}:{ip}<0>", "Initialized NET plugin IB"],
        "Socket": ["NET/IB : No device found.", f"NET/Socket : Using [0]{interface}:{ip}<0>"],
    }
    channels = [
        f"Channel {number:02}/0 : 0[0] -> 1[0] [receive] via NET/{net}/{number % 2}" for number in range(2)
    ]
    version = ["NCCL version 2.28.9+cuda13.0"] if rank == 0 else []
    return [
        *start,
        *version,
        *ways[net],
        f"Using network {net}",
        *channels,
        "Connected all rings, use ring PXN 0 GDR 0",
    ]


def find_checkpoint(model: str) -> Path:
    """
    The folder of *model* on this node: a path, or a snapshot in the Hugging Face cache.

    Raises:
        LoadError: it is not here; nothing is ever downloaded.
    """
    if model.startswith("/"):
        if (Path(model) / "config.json").exists():
            return Path(model)
        raise LoadError(f"OSError: Can't load the configuration of '{model}'. No such file or directory")
    home = Path(os.environ.get("HF_HOME", str(Path.home() / ".cache/huggingface")))
    repository = home / "hub" / ("models--" + model.replace("/", "--"))
    if (main := repository / "refs/main").exists():
        return repository / "snapshots" / main.read_text().strip()
    raise LoadError(
        "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder for the "
        "specified revision on the local disk and outgoing traffic has been disabled."
    )


def forever() -> None:
    while True:
        time.sleep(3600)


def _end_with_raylet() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


def main(engine: str, rank: int, node: Message) -> None:
    call_me("ray::RayWorkerP")
    threading.Thread(target=_end_with_raylet, daemon=True).start()
    Rank(engine, rank, node).serve()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]))
