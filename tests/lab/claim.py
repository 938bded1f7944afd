"""Who holds a lab: test sessions side by side each take an id of their own."""

from __future__ import annotations

import contextlib
import fcntl
from typing import TYPE_CHECKING

from .topology import Topology

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def claimed(lock: Path) -> Iterator[None]:
    """Hold *lock* while the block runs; BlockingIOError when another process does."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


@contextlib.contextmanager
def free_topology(state: Path, size: int = 2) -> Iterator[Topology]:
    """A lab id that no other session uses; the engines' data of an id is kept, so that images stay imported."""
    with contextlib.ExitStack() as stack:
        for number in range(100):
            topology = Topology(f"t{number}", size, state)
            with contextlib.suppress(BlockingIOError):
                stack.enter_context(claimed(topology.folder.with_suffix(".lock")))
                yield topology
                return
