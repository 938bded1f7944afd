"""What a run was about to do, what happened and what was found: one folder per run on this machine."""

from __future__ import annotations

import json
import os
import re
import secrets as random
import shutil
import sys
import tarfile
import zlib
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from orchestrator.model.event import to_mapping
from orchestrator.run.history import RUN_ID, SCHEMA, runs_folder
from orchestrator.run.mask import each_string, mask, mask_bytes, masked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from io import FileIO

    from typing_extensions import Self

    from orchestrator.model.event import Event
    from orchestrator.model.release import Release

KEPT_RUNS = 50
_CONTROLS = re.compile(r"[\x00-\x1f]")


class Journal:
    """
    The journal of one run, and a Sink.

    It never holds a secret (see hide()), and a disk that is full or read-only costs one warning, not the run.
    May be called from several threads as long as each event comes whole (`ui.sink.tee` sees to that).
    """

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self.folder = folder
        self._warn = warn
        self._warned = False
        self._secrets: set[str] = set()
        self._hide = mask(())
        self._hide_bytes = mask_bytes(())
        self._events: FileIO | None = None
        self._torn = False
        self._about: dict[str, Any] = {}

    @classmethod
    def open(
        cls,
        environ: Mapping[str, str],
        deployment: str,
        command: str,
        clock: Callable[[], float],
        warn: Callable[[str], None] | None = None,
    ) -> Journal:
        """Begin the journal of a run of *command*. Only the last 50 runs are kept."""
        began = clock()
        journal = cls(_new_folder(environ, began), warn or _warn_on_stderr)
        with journal.guard():
            journal.folder.mkdir(mode=0o700, parents=True)
            _prune(journal.folder.parent)
        journal.describe(schema=SCHEMA, id=journal.id, at=began, deployment=deployment, command=command)
        return journal

    @property
    def id(self) -> str:
        return self.folder.name

    def hide(self, secrets: Iterable[str]) -> None:
        """From now on write `***` in the place of these values too."""
        self._secrets |= set(secrets)
        self._hide, self._hide_bytes = mask(self._secrets), mask_bytes(self._secrets)

    def hidden(self, text: str) -> str:
        """Give *text* without any secret known by now, e.g. for `masking(screen, journal.hidden)`."""
        return self._hide(text)

    def __call__(self, event: Event) -> None:
        """Append *event* to events.jsonl, at once."""
        line = json.dumps(to_mapping(masked(event, self._hide)), default=str)
        with self.guard():
            self._append(line.encode() + b"\n")

    def write_plan(self, text: str) -> None:
        self._write(self.folder / "plan.txt", text.encode("utf-8", "backslashreplace"))

    def write_release(self, release: Release) -> None:
        """Keep the rendered bytes of every node under files/<node>/."""
        for node, files in release.by_node.items():
            for file in files:
                self._write(_inside(self.folder / "files" / node, file.path), file.content)

    def describe(self, **facts: Any) -> None:
        """Add to run.json what is known by now: argv, version, release."""
        self._about.update(facts)
        shown = each_string(self._about, self._hide)
        self._write(self.folder / "run.json", json.dumps(shown, indent=1, default=str).encode() + b"\n")

    def keep_sources(self, **paths: str) -> None:
        """Copy `inventory=`, `recipe=` files as they are now to sources/<name>.yaml."""
        self.describe(sources=paths)
        for name, path in paths.items():
            with self.guard():
                self._write(self.folder / "sources" / f"{name}.yaml", Path(path).read_bytes())

    def save(self, node: str, name: str, content: bytes) -> None:
        """
        Keep what was found on *node* as evidence/<node>/<name>.

        A `.tar.gz` is kept unpacked, as no secret could be found in it otherwise.
        """
        place = _inside(_inside(self.folder / "evidence", node), name)
        if name.endswith(".tar.gz"):
            for path, unpacked in _unpacked(content):
                self._write(_inside(place.with_name(place.name.removesuffix(".tar.gz")), path), unpacked)
        else:
            self._write(place, content)

    def close(self) -> None:
        if self._events:
            with suppress(OSError):
                self._events.close()
        self._events = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Turn what the disk cannot do into one warning."""
        try:
            yield
        except OSError as error:
            if not self._warned:
                self._warned = True
                self._warn(f"the journal of this run is incomplete: {error}; the run goes on")

    def _write(self, path: Path, content: bytes) -> None:
        with self.guard():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(path, "wb", opener=_private) as file:
                file.write(self._hide_bytes(content))

    def _append(self, line: bytes) -> None:
        """One write call a line; a line that a full disk has cut is ended before the next one."""
        if self._events is None:
            path = self.folder / "events.jsonl"
            self._events = open(path, "ab", buffering=0, opener=_private)  # noqa: SIM115 - closed by close()
        content = b"\n" + line if self._torn else line
        self._torn = True
        while content:
            content = content[self._events.write(content) :]
        self._torn = False


def _new_folder(environ: Mapping[str, str], began: float) -> Path:
    stamp = datetime.fromtimestamp(began, timezone.utc).strftime("%Y%m%dT%H%M%S")
    return runs_folder(environ) / f"{stamp}-{random.token_hex(3)}"


def _prune(runs: Path) -> None:
    """Remove all but the newest runs; folders with other names are not ours."""
    ours = sorted(folder for folder in runs.iterdir() if RUN_ID.fullmatch(folder.name))
    for folder in ours[:-KEPT_RUNS]:
        shutil.rmtree(folder, ignore_errors=True)


def _unpacked(archive: bytes) -> Iterator[tuple[str, bytes]]:
    """Give the plain files of a .tar.gz, as far as it is whole, 64 MiB at most: it comes from a node."""
    left = 64 * 1024**2
    with (
        suppress(tarfile.TarError, OSError, EOFError, zlib.error),
        tarfile.open(fileobj=BytesIO(archive)) as tar,
    ):
        for member in tar:
            file = tar.extractfile(member) if member.isfile() else None
            if file and left > 0:
                content = file.read(left)
                left -= len(content)
                yield member.name, content


def _inside(folder: Path, name: str) -> Path:
    """A place under *folder* whatever *name*, which may come from a node, says."""
    parts = [_CONTROLS.sub("_", part) for part in PurePosixPath(name).parts if part not in ("/", "//", "..")]
    return folder.joinpath(*(parts or ["unnamed"]))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _warn_on_stderr(text: str) -> None:
    with suppress(OSError, ValueError):
        print(f"Warning: {text}", file=sys.stderr)  # noqa: T201
