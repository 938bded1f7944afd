"""A folder that may not be looked into, for tests that may run as root."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NOBODY = 65534


@contextmanager
def closed(path: Path) -> Iterator[None]:
    """Nobody may read *path* meanwhile, as after a `sudo` that made it root's; root becomes `nobody` for it."""
    mode, root = path.stat().st_mode, os.geteuid() == 0
    path.chmod(0)
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        path.chmod(mode)
