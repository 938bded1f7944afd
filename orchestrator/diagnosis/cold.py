"""What an engine did while its very first request waited, from the lines it logged meanwhile."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# In the order of interest. Newer vLLM names each kernel that is compiled for a request (its jit_monitor);
# FlashInfer, torch.compile and NCCL have lines of their own.
_WAITS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"JIT compilation during inference: (?P<what>\w+)"), "kernels were compiled"),
    (re.compile(r"Loading JIT ops: (?P<what>[\w.-]+)"), "FlashInfer built or loaded kernels"),
    (re.compile(r"\[Auto[Tt]uner\]|Running FlashInfer autotune"), "kernels were tuned"),
    (re.compile(r"Dynamo bytecode|Compiling a graph|torch\.compile (?:took|takes)"), "torch.compile ran"),
    (re.compile(r"Capturing CUDA graph|Graph capturing"), "CUDA graphs were captured"),
    (re.compile(r"NCCL INFO .*(?:Init START|Init COMPLETE|Connected all)"), "NCCL set its connections up"),
)


def cold_reason(lines: Sequence[str]) -> str:
    """Say what the request waited for; "": the lines do not tell."""
    told = []
    for pattern, text in _WAITS:
        found = [match for match in map(pattern.search, lines) if match]
        names = dict.fromkeys(filter(None, (match.groupdict().get("what") for match in found)))
        if found:
            told.append(f"{text} ({_some(list(names))})" if names else text)
    return "; ".join(told)


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return ", ".join(names[:2]) + more
