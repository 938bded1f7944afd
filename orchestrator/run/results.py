"""A folder of results: written whole or not at all, level by level, and read again to go on."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import FileError, SparkDeployError, UsageError
from orchestrator.load.result import SavedLevel, load_level, load_result, result_json, to_json
from orchestrator.model.bench import DEFINITIONS
from orchestrator.run.history import list_runs, load_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from orchestrator.model.bench import Deployment, Level, LevelResult, Load, Request, Result
    from orchestrator.run.history import Run

    Requests = Sequence[Sequence[Request]]  # by repeat
    Reports = Callable[[Result], Mapping[str, str]]  # by file name


def config_hash(load: Load, deployment: Deployment, url: str) -> str:
    """Two sweeps with the same one measure the same: a level of the one may stand in the other."""
    return hashlib.sha256(json.dumps(_config(load, deployment, url), sort_keys=True).encode()).hexdigest()[
        :16
    ]


class Folder:
    """*reports* gives report.md and its like; the folder itself is made when something is written into it."""

    def __init__(self, path: Path, reports: Reports = lambda _: {}) -> None:
        self.path = path
        self._reports = reports

    def refuse_another(self, load: Load, deployment: Deployment, url: str, *, resume: bool) -> None:
        """
        Refuse, before anything is measured, what would overwrite a result.

        Raises:
            UsageError: one is there, and it is not to be resumed, or is of something else; none can be written.
            FileError: it cannot be read.
        """
        if why := unwritable(self.path):
            raise UsageError(
                f"no results can be written into {self.path}",
                found=why,
                wanted="a folder to write results into",
                hint="name another one with --out",
            )
        if not (self.path / "result.json").exists():
            return
        if not resume:
            raise UsageError(
                f"{self.path} holds a result already",
                hint="name another folder, or take over its levels with --resume",
            )
        there = load_result(self.path)
        found = _config(there.load, there.deployment, there.target.url, there.definitions)
        wanted = _config(load, deployment, url)
        differ = [name for name in wanted if found.get(name) != wanted[name]]
        if differ:
            raise UsageError(
                f"{self.path} holds the result of something else",
                found=", ".join(f"{name} {found.get(name)}" for name in differ),
                wanted=", ".join(f"{name} {wanted[name]}" for name in differ),
                hint="name another folder",
            )

    def save_level(self, config: str, result: LevelResult, requests: Requests) -> None:
        """Keep a whole level. Raises SparkDeployError: it cannot be written."""
        saved = SavedLevel(config, result, tuple(map(tuple, requests)))
        _write(self._level(result.level).parent, {self._level(result.level).name: to_json(saved)})

    def saved_level(self, config: str, level: Level) -> tuple[LevelResult, Requests] | None:
        """Give the level if it is there, whole, and was measured with *config*."""
        file = self._level(level)
        try:
            saved = load_level(file, file.read_bytes())
        except (OSError, FileError):
            return None
        return (saved.result, saved.requests) if saved.config == config else None

    def write(self, result: Result, requests: Mapping[str, Requests]) -> None:
        """
        Write result.json, requests.jsonl and the reports. *requests*: by the level's name.

        Raises:
            SparkDeployError: they cannot be written; what was there before is then whole.
        """
        reports = {
            name: text.encode("utf-8", "backslashreplace") for name, text in self._reports(result).items()
        }
        lines = b"".join(_lines(requests))
        _write(self.path, {"requests.jsonl": lines, **reports, "result.json": result_json(result)})

    def _level(self, level: Level) -> Path:
        return self.path / "levels" / f"{level.name.replace('/', '-per-')}.json"


def unwritable(folder: Path) -> str:
    """Say why no file can be written into *folder*, which need not be there yet; "" where one can."""
    try:
        there = next(place for place in (folder, *folder.parents) if place.is_symlink() or place.exists())
    except OSError as error:  # a name that is too long
        return error.strerror or str(error)
    if not there.is_dir():
        return f"{there} is not a folder"
    return "" if os.access(there, os.W_OK | os.X_OK) else f"{there} is not writable"


def find_result(environ: Mapping[str, str], text: str) -> Result:
    """
    Give the result in a folder, in a file, or of the run whose id begins so.

    Raises:
        FileError: there is none, or it cannot be read.
        UsageError: no run, or more than one, has such an id.
    """
    there = os.path.exists(text)  # noqa: PTH110  # Path.exists() raises where a name is too long
    if there or not (text == "last" or text[:1].isdigit()):
        return load_result(text)
    return load_result(load_run(environ, text).results)


def kept_results(environ: Mapping[str, str]) -> Iterator[tuple[Run, Result | SparkDeployError]]:
    """
    Give the results of all runs, the newest first; the error of one that cannot be read.

    What a later run left in the same folder is that one's.
    """
    for run in list_runs(environ):
        with suppress(OSError):
            if not (run.results / "result.json").exists():
                continue
        try:
            found = load_result(run.results)
        except FileError as error:
            yield run, error
        else:
            if not run.out or found.run_id == run.id:
                yield run, found


def _config(load: Load, deployment: Deployment, url: str, definitions: int = DEFINITIONS) -> dict[str, str]:
    """Give what a level depends on, flat and as text, so that a difference can be named."""
    parts = {"load": asdict(load), "deployment": asdict(deployment), "target": {"url": url}}
    flat = {f"{part}.{name}": value for part, fields in parts.items() for name, value in fields.items()}
    return {name: _text(value) for name, value in {**flat, "definitions": definitions}.items()}


def _text(value: object) -> str:
    """A number that was read back from JSON is the same, 0.0 for 0."""
    text = json.dumps(value, sort_keys=True)
    return text.removesuffix(".0") if isinstance(value, float) else text


def _lines(requests: Mapping[str, Requests]) -> Iterator[bytes]:
    """One line a request: its level and repeat, then all of its fields."""
    for level, repeats in requests.items():
        for number, repeat in enumerate(repeats, 1):
            head = f'{{"level":{json.dumps(level)},"repeat":{number},'.encode()
            yield from (head + to_json(request)[1:] + b"\n" for request in repeat)


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """All files are on the disk before the first one is put into its place: a full disk changes nothing."""
    staged: dict[str, Path] = {}
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, content in files.items():
            staged[name] = _staged(folder, name, content)
        for name, path in staged.items():
            path.replace(folder / name)
    except OSError as error:
        raise SparkDeployError(
            "the results cannot be written",
            at=str(folder),
            found=error.strerror or str(error),
            hint="free some space there, or name another folder with --out",
        ) from None
    finally:
        for path in staged.values():
            with suppress(OSError):
                path.unlink()


def _staged(folder: Path, name: str, content: bytes) -> Path:
    """Give the path of a temporary file (0600) beside the place of *name*."""
    handle, made = tempfile.mkstemp(prefix=f".{name}.", dir=folder)
    path = Path(made)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(handle)
    except OSError:
        path.unlink()
        raise
    return path
