"""Who holds what: test sessions side by side each take a lab of their own, and build images and engine one by one."""

from __future__ import annotations

import contextlib
import fcntl
from typing import TYPE_CHECKING

from .topology import Topology

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def claimed(lock: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold *lock* while the block runs; while another process does, *wait* for it, else BlockingIOError."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield


@contextlib.contextmanager
def free_topology(size: int = 2) -> Iterator[Topology]:
    """A lab id that no other session uses; the engines' data of an id is kept, so that images stay imported."""
    with contextlib.ExitStack() as stack:
        for number in range(100):
            topology = Topology(f"t{number}", size)
            with contextlib.suppress(BlockingIOError):
                stack.enter_context(claimed(topology.folder.with_suffix(".lock")))
                yield topology
                return
