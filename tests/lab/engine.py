"""The real engine: Ray 2.60 and vLLM 0.32 (CPU) in a venv, and a tiny model. `python3 tests/lab engine` installs it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path

from .claim import claimed
from .images import MODEL, VENV
from .requirements import SEARCH_PATH
from .slice import system_python
from .topology import STATE

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements-real.txt"
MARKER = VENV / "lab-requirements.sha256"
TORCH = "torch==2.13.0"
CANNOT_BE_BUILT = "the real engine cannot be built"


def install() -> str | None:
    """Why the real engine cannot be had here, in one line, or None when venv and model are in place."""
    with claimed(STATE / "engine.lock", wait=True):
        return _venv() or _model()


def wanted() -> str:
    return hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()


def _venv() -> str | None:
    if MARKER.exists() and MARKER.read_text() == wanted():
        return None
    if _already_right():
        MARKER.write_text(wanted())
        return None
    python = str(system_python())
    if reason := _fails([python, "-m", "venv", str(VENV)], "apt-get install -y python3-venv"):
        return reason
    if reason := _torch():
        return reason
    pip = [
        str(VENV / "bin/pip"),
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "-r",
        str(REQUIREMENTS),
    ]
    if reason := _fails(pip, "see the lines above"):
        return reason
    MARKER.write_text(wanted())
    return None


def _already_right() -> bool:
    """Whether a venv made in another way holds every pinned package."""
    pip = VENV / "bin/pip"
    if not pip.exists():
        return False
    frozen = subprocess.run([str(pip), "freeze", "--all"], capture_output=True, text=True, check=False).stdout
    lines = set(frozen.lower().split())
    return set(REQUIREMENTS.read_text().lower().split()) | {f"{TORCH}+cpu"} <= lines


def _torch() -> str | None:
    """pip's own sources must have the CPU build: the CUDA build is 3 GB and needs a GPU."""
    pip = [str(VENV / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    found = subprocess.run(
        [*pip, "--dry-run", "--report", "-", TORCH], capture_output=True, text=True, check=False
    )
    if found.returncode != 0:
        return f"{TORCH} is not to be had here: {CANNOT_BE_BUILT}; {_last_line(found)}"
    version = json.loads(found.stdout)["install"][0]["metadata"]["version"]
    if not version.endswith("+cpu"):
        return f"pip finds {TORCH} as {version}, not as its CPU build: {CANNOT_BE_BUILT}"
    return _fails([*pip, TORCH], "")


def _model() -> str | None:
    if (MODEL / "config.json").exists():
        return None
    return _fails(
        [str(VENV / "bin/python"), str(HERE / "tiny_model.py"), str(MODEL)], "is the venv complete?"
    )


def _fails(command: list[str], hint: str) -> str | None:
    # pip's own settings (index, wheels, certificates) may stand in the environment: they hold here, too.
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    }
    environment = {**kept, "PATH": SEARCH_PATH}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    return f"{' '.join(command[:4])} …: {_last_line(done)}{'; ' + hint if hint else ''}"


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr.strip() or done.stdout.strip() or f"exit {done.returncode}").splitlines()[-1]
