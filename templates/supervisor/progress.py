"""How far the start of the engine is, by its log. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PREFIX = re.compile(r"^(?:\([^()]*(?:pid=|raylet)[^()]*\)\s*)+")
_LEVEL = re.compile(r"^(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?")


def plain(line: str) -> str:
    """*line* without the colours that Ray prints even with NO_COLOR=1."""
    return _ANSI.sub("", line).rstrip()


def message(line: str) -> str:
    """*line* without `(EngineCore pid=1) ERROR 11-30 19:39:09 [core.py:1510] `."""
    return _LEVEL.sub("", _PREFIX.sub("", plain(line)))


# Stage, pattern, text. Stages only go forward: the other rank's lines come late and out of order.
_PROGRESS: tuple[tuple[int, re.Pattern[str], str], ...] = (
    (1, re.compile(r"[█▀▄] +version \d|vLLM (?:API )?server version"), "vllm starting"),
    (2, re.compile(r"Initializing a V1 LLM engine"), "engine starting"),
    (2, re.compile(r"Waiting for creating a placement group"), "waiting for the GPUs in Ray"),
    (
        3,
        re.compile(r"world_size=\d+ rank=\d+|NCCL INFO .*\bInit START|vLLM is using nccl"),
        "ranks connecting",
    ),
    (4, re.compile(r"Starting to load model"), "loading weights"),
    (4, re.compile(r"[Ll]oading .*?\d+% Completed \| (\d+)/(\d+)"), "weights {0}/{1}"),
    (5, re.compile(r"Loading weights took|Model loading took"), "weights loaded"),
    (6, re.compile(r"Dynamo bytecode|Compiling a graph|Warming up model for the compilation"), "compiling"),
    (6, re.compile(r"torch\.compile (?:took|takes)"), "compiled"),
    (7, re.compile(r"Profiling CUDA graph memory|Initial profiling"), "profiling memory"),
    (7, re.compile(r"(?:GPU|CPU) KV cache size|Available KV cache memory"), "KV cache"),
    (8, re.compile(r"Running FlashInfer autotune|Autotuning|autotuner"), "autotuning kernels"),
    (8, re.compile(r"Warming up "), "warming up kernels"),
    (9, re.compile(r"Capturing CUDA graphs.*?(\d+)%"), "capturing graphs {0}%"),
    (10, re.compile(r"Graph capturing finished"), "graphs captured"),
    (11, re.compile(r"init engine \(profile"), "engine ready"),
    (12, re.compile(r"Starting vLLM server on|Application startup complete"), "API starting"),
)


@dataclass(frozen=True, order=True)
class Progress:
    """How far the start of `vllm serve` is: the stage, the part of it that is done (0 to 1), and in words."""

    stage: int = 0
    part: float = 0
    text: str = field(default="", compare=False)


def parse_progress(line: str) -> Progress | None:
    """None: the line does not say."""
    text = plain(line)
    for stage, pattern, words in _PROGRESS:
        if match := pattern.search(text):
            numbers = [int(number) for number in match.groups()]
            part = numbers[0] / (numbers[1:] or [100])[0] if numbers and numbers[-1] else 0.0
            return Progress(stage, part, words.format(*numbers))
    return None
