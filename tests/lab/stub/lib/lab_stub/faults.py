"""
What goes wrong on purpose, from the environment of the container (a recipe's `env`).

| variable | value | what happens |
|---|---|---|
| LAB_RAY_START | seconds, 0.2 | how long `ray start` takes |
| LAB_RAY_DEAD_AFTER | seconds, 64 | silence after which the GCS calls a node dead (real: 64-68) |
| LAB_RAY_REFUSE_JOIN_ON | fabric address | `ray start` on that node never reaches the head and blocks for ever |
| LAB_RAY_IP | address | the head registers under that address |
| LAB_RAY_MEMORY_KILL | 1 | Ray's memory monitor kills rank 1 during graph capture, unless it is switched off |
| LAB_NET | IB, Socket, gloo | what the ranks say of their transport; else IB where HCAs are named and present |
| LAB_NCCL_HANG | 1 | the ranks never get past NCCL's bootstrap |
| LAB_VLLM_START | seconds, 0.3 | loading, compiling and capturing together |
| LAB_VLLM_EXIT_AT | weights, graphs | the engine fails there |
| LAB_VLLM_ARCH_ERROR | vllm, transformers | the model is too new for this vLLM, or for its Transformers |
| LAB_TPS | 40 | engine steps per second: tokens per second and request |
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field


def _text(name: str, default: str = "") -> str:
    return field(default_factory=lambda: os.environ.get(name, default))


def _number(name: str, default: float) -> float:
    return field(default_factory=lambda: float(os.environ.get(name, default)))


@dataclass(frozen=True)
class Faults:
    ray_start_s: float = _number("LAB_RAY_START", 0.2)
    ray_dead_after_s: float = _number("LAB_RAY_DEAD_AFTER", 64)
    ray_refuse_join_on: str = _text("LAB_RAY_REFUSE_JOIN_ON")
    ray_ip: str = _text("LAB_RAY_IP")
    ray_memory_kill: str = _text("LAB_RAY_MEMORY_KILL")
    net: str = _text("LAB_NET")
    nccl_hang: str = _text("LAB_NCCL_HANG")
    vllm_start_s: float = _number("LAB_VLLM_START", 0.3)
    vllm_exit_at: str = _text("LAB_VLLM_EXIT_AT")
    vllm_arch_error: str = _text("LAB_VLLM_ARCH_ERROR")
    tokens_per_s: float = _number("LAB_TPS", 40)
