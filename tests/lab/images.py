"""The lab's images: built once per machine, imported into an engine once."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from . import slice as debian
from .claim import claimed
from .machine import command_in, engine_answers
from .shell import LabError, run
from .topology import STATE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .topology import Machine

HERE = Path(__file__).parent
LABEL = "spark-lab.inputs"
STUB_PLACE = "opt/stub"
PLUGIN_PLACE = "/lab/plugin"  # in a node
VENV = STATE / "venv"  # of the real engine, and its model: engine.py makes both
MODEL = STATE / "model"


@dataclass(frozen=True)
class Image:
    """*add* goes into the image; *binds* are paths of the node that lab-runc mounts into its containers."""

    name: str
    add: Mapping[Path, str] = field(default_factory=dict)
    binds: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()  # Dockerfile lines

    @property
    def inputs(self) -> str:
        """SHA-256 of all that goes into it."""
        digest = hashlib.sha256(repr((self.name, self.binds, self.changes)).encode())
        for source in (Path(debian.__file__), *sorted(self.add)):
            for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
                if path.is_file() and "__pycache__" not in path.parts:
                    digest.update(str(path.relative_to(HERE)).encode() + path.read_bytes())
        digest.update(str(debian.system_python()).encode() + Path("/etc/debian_version").read_bytes())
        return digest.hexdigest()[:16]


STUB = Image(
    name="lab/vllm:stub",
    add={
        HERE / "stub/lib": f"{STUB_PLACE}/lib",
        HERE / "stub/bin/ray": "usr/local/bin/ray",
        HERE / "stub/bin/vllm": "usr/local/bin/vllm",
    },
    changes=("ENV HOME=/root", f"ENV PYTHONPATH=/{STUB_PLACE}/lib", "WORKDIR /root"),
)


# Real Ray and vLLM (CPU): a small image, into which lab-runc mounts the venv and the model.
REAL = Image(
    name="lab/vllm:slim",
    binds=(str(VENV), str(MODEL), PLUGIN_PLACE),
    changes=(
        f"ENV PATH={VENV}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        f"ENV PYTHONPATH={PLUGIN_PLACE}",
        "ENV HOME=/root",
        "WORKDIR /root",
    ),
)


def binds() -> list[str]:
    """Folders of the host that every node sees at the same place: what the real engine's image mounts."""
    return [str(folder) for folder in (VENV, MODEL) if folder.is_dir()]


def build(image: Image) -> Path:
    """The image's tar file, from the cache when its inputs have not changed."""
    cache = STATE / "images"
    stem = image.name.replace("/", "-").replace(":", "-")
    tar = cache / f"{stem}-{image.inputs}.tar"
    with claimed(cache / "lock", wait=True):
        if not tar.exists():
            for old in cache.glob(f"{stem}-*"):
                old.unlink()
            beside = tar.with_suffix(".new")
            debian.write(beside, add=image.add, binds=image.binds)
            beside.rename(tar)
    return tar


def load(node: Machine, image: Image, tar: Path) -> None:
    """The node's engine has *image*; imported only where it is missing or another."""
    if _inputs_of(node, image.name) == image.inputs:
        return
    options = [
        word for change in (*image.changes, f"LABEL {LABEL}={image.inputs}") for word in ("-c", change)
    ]
    with tar.open("rb") as content:
        command = command_in(node, ["docker", "import", *options, "-", image.name])
        done = subprocess.run(command, stdin=content, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"{node.name}: cannot import {image.name}: {done.stderr.strip()}")


def _inputs_of(node: Machine, name: str) -> str:
    template = f'{{{{index .Config.Labels "{LABEL}"}}}}'
    words = command_in(node, ["docker", "image", "inspect", "--format", template, name])
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


def try_remove_containers(node: Machine) -> None:
    """As remove_containers(), where the node has power and an engine."""
    if engine_answers(node):
        with contextlib.suppress(LabError, subprocess.TimeoutExpired):
            remove_containers(node)


def remove_containers(node: Machine) -> None:
    """Containers that an earlier lab left in the engine's data."""
    if names := run(command_in(node, ["docker", "ps", "--all", "--quiet"])).split():
        run(command_in(node, ["docker", "rm", "--force", *names]))
