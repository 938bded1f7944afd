"""The folders of a node, as its container sees them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Folders:
    """*release* is read-only and immutable, *run* is ours; all that we write belongs to the owner of *run*."""

    release: Path
    run: Path
    cache: Path
    models: Path  # of the Hugging Face cache

    @classmethod
    def from_environment(cls) -> Folders:
        base = Path(os.environ.get("SPARK_DEPLOY_BASE", "/spark-deploy"))  # elsewhere in tests
        return cls(
            release=base / "release",
            run=base / "run",
            cache=base / "cache",
            models=Path(os.environ.get("HF_HOME", base / "huggingface")) / "hub",
        )

    def read(self, name: str) -> str:
        """Text of a file in run/, `""` where there is none."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return (self.run / name).read_text()
        return ""

    def arguments(self, name: str) -> list[str]:
        """One argument a line, as they stand in the release folder."""
        return (self.release / name).read_text().splitlines()

    def release_id(self) -> str:
        """The id12: of the manifest, which is the same on every node."""
        return hashlib.sha256((self.release / "manifest.json").read_bytes()).hexdigest()[:12]

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        """Replace a JSON file in one piece: a reader, and a power cut, sees the old one or the new one."""
        scratch = self.run / f".{name}.new"
        with scratch.open("w") as file:
            json.dump(value, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        self.adopt(scratch)
        scratch.replace(self.run / name)

    def adopt(self, path: Path) -> None:
        """Give *path*, and all below it, to the owner of run/: an operator who is not root removes it."""
        owner = self.run.stat()
        for entry in (path, *path.rglob("*")):
            with contextlib.suppress(OSError):
                if entry.lstat().st_uid != owner.st_uid:
                    os.chown(entry, owner.st_uid, owner.st_gid, follow_symlinks=False)


def empty(folder: Path, pattern: str = "*") -> None:
    for path in folder.glob(pattern):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()


def model_folder(model: str, models: Path) -> Path:
    """Where a Hub id or a local path lies in the container."""
    return Path(model) if model.startswith("/") else models / ("models--" + model.replace("/", "--"))


def drop_cache(folder: Path) -> int:
    """
    Give the page cache of the files in *folder* back; give how many files that were.

    Page cache counts as used memory for CUDA on GB10. Works read-only and as any user, not on what a process
    has mapped: so before the engine starts.
    """
    files = [path for path in folder.rglob("*") if path.is_file()]
    for path in files:
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
    return len(files)
