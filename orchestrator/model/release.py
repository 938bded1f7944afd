"""The files that make a deployment what it is. Immutable, named by their content."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class ReleaseFile:
    """One file of a node's release folder; *path* is relative to it."""

    path: str
    content: bytes
    mode: int = 0o644

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()


@dataclass(frozen=True)
class Release:
    """
    What all nodes of a deployment run.

    *manifest* is one file, the same on every node, with the SHA-256 of every file of every node: any
    change on any node makes a new release of the whole pair, and ranks of two releases never mix.
    """

    deployment: str
    manifest: ReleaseFile
    by_node: Mapping[str, tuple[ReleaseFile, ...]]  # node name -> its files, the manifest among them

    @property
    def id(self) -> str:
        """SHA-256 of the manifest: secrets are not in it."""
        return self.manifest.sha256

    @property
    def id12(self) -> str:
        """The first 12 digits, the name of the release folder and of the container's label."""
        return self.id[:12]
