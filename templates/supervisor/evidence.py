"""What a failed attempt leaves to look at."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor.processes import memory_kb

if TYPE_CHECKING:
    from collections.abc import Mapping

    from supervisor.attempts import Failure
    from supervisor.children import Children
    from supervisor.files import Folders

EVIDENCE_BYTES = 2_000_000
EVIDENCE_KEPT = 3


class Evidence:
    """run/evidence/N: what a failed attempt leaves to look at; the last three are kept."""

    def __init__(self, folders: Folders, children: Children) -> None:
        self._folders = folders
        self._children = children

    def save(self, failure: Failure, state: Mapping[str, Any], env: Mapping[str, str]) -> Path:
        root = self._folders.run / "evidence"
        numbers = [int(path.name) for path in root.glob("*") if path.name.isdigit()]
        folder = root / str(max(numbers, default=0) + 1)
        folder.mkdir(parents=True)
        self._put(folder / "cause.json", json.dumps({"at": time.time(), **asdict(failure)}, indent=1))
        self._put(folder / "state.json", json.dumps(state, indent=1))
        self._put(folder / "meminfo.txt", "".join(f"{key} {kb} kB\n" for key, kb in memory_kb().items()))
        if self._children.kept["vllm"]:  # of the head: on a worker it only waits
            self._put(folder / "ray-status.txt", _output(["ray", "status"], env, 2.0))
        kernel = _output(["dmesg"], env, 1.0).splitlines()
        self._put(folder / "kernel-oom.txt", "\n".join(line for line in kernel if "oom" in line.lower()))
        for name, lines in self._children.kept.items():
            self._put(folder / f"{name}.log", "\n".join(lines))
        self._save_ray_logs(folder / "ray-logs", Path("/tmp/ray/session_latest/logs"))
        self._folders.adopt(root)
        for number in sorted(numbers)[: 1 - EVIDENCE_KEPT]:
            shutil.rmtree(root / str(number), ignore_errors=True)
        return folder

    def _put(self, path: Path, text: str) -> None:
        if text.strip():
            path.write_text(self._children.struck(text))

    def _save_ray_logs(self, folder: Path, logs: Path) -> None:
        """The end of each, the errors first, 2 MB in all."""
        room = EVIDENCE_BYTES
        files = [path for path in logs.glob("*") if path.is_file() and path.stat().st_size]
        for path in sorted(files, key=lambda path: (path.suffix != ".err", -path.stat().st_mtime)):
            size = min(room, 64_000, path.stat().st_size)
            if not size:
                return
            folder.mkdir(exist_ok=True)
            with path.open("rb") as file:
                file.seek(-size, os.SEEK_END)
                self._put(folder / path.name, file.read().decode(errors="replace"))
            room -= size


def _output(argv: list[str], env: Mapping[str, str], limit_s: float) -> str:
    """What a command prints, or why it prints nothing."""
    try:
        done = subprocess.run(
            argv,
            env=dict(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit_s,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{' '.join(argv)}: {error}\n"
    return done.stdout.decode(errors="replace")
