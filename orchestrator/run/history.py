"""Journals of the past: found, read and summed up."""

from __future__ import annotations

import json
import os
import pwd
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import Exit, SparkDeployError, UsageError
from orchestrator.model.event import from_mapping

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator.model.event import Event

SCHEMA = "spark-deploy/run/v1"
RUN_ID = re.compile(r"\d{8}T\d{6}-[0-9a-f]{6}")
_OUTCOMES: dict[int, str] = {
    Exit.DONE: "done",
    Exit.FAILED: "failed",
    Exit.USAGE: "usage",
    Exit.FILE: "file wrong",
    Exit.CHECK: "refused",
    Exit.UNREACHABLE: "unreachable",
    Exit.LOCKED: "locked",
    Exit.REGRESSION: "regression",
    Exit.INCONCLUSIVE: "inconclusive",
    Exit.INVALID: "invalid",
    Exit.INTERRUPTED: "interrupted",
}


@dataclass(frozen=True)
class Run:
    """One run as its journal tells it; what a torn journal does not tell is empty."""

    id: str
    folder: Path
    at: float = 0  # seconds since the epoch
    command: str = ""
    deployment: str = ""
    release: str = ""
    version: str = ""
    argv: tuple[str, ...] = ()
    events: tuple[Event, ...] = field(default=(), repr=False)
    closed: str = ""  # why it cannot be read, e.g. another user's
    out: str = ""  # `bench --out`: the folder of its results

    @property
    def results(self) -> Path:
        """Where `bench` has put its results, if it came so far."""
        return Path(self.out) if self.out else self.folder / "bench"

    @property
    def exit_code(self) -> int | None:
        """None while it runs, and for ever when it was killed."""
        for event in reversed(self.events):
            if event.kind in ("finished", "error") and isinstance(event.data.get("exit_code"), int):
                return int(event.data["exit_code"])
        return None

    @property
    def outcome(self) -> str:
        if self.closed:
            return "cannot be read"
        code = self.exit_code
        return "unfinished" if code is None else _OUTCOMES.get(code, f"exit code {code}")

    @property
    def seconds(self) -> float | None:
        """How long it took, or has left traces."""
        return self.events[-1].at - self.at if self.events and self.at else None

    def files(self) -> tuple[str, ...]:
        """All saved files, relative to the folder."""
        return tuple(sorted(str(p.relative_to(self.folder)) for p in self.folder.rglob("*") if p.is_file()))


def runs_folder(environ: Mapping[str, str]) -> Path:
    """Give $XDG_STATE_HOME/spark-deploy/runs; the XDG specification ignores a value that is not absolute."""
    given = environ.get("XDG_STATE_HOME", "")
    home = environ.get("HOME") or _passwd_home()
    state = Path(given) if given.startswith("/") else Path(home, ".local", "state")
    return state / "spark-deploy" / "runs"


def _passwd_home() -> str:
    """What ssh takes, too, where HOME is empty: os.path.expanduser() makes / of that."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a container's user without a line in passwd
        return "/"


def list_runs(environ: Mapping[str, str]) -> tuple[Run, ...]:
    """
    Give all runs, the newest first.

    Raises:
        SparkDeployError: their folder cannot be read.
    """
    return tuple(_read(folder) for folder in sorted(_folders(environ), reverse=True))


def load_run(environ: Mapping[str, str], run_id: str) -> Run:
    """
    Give the run whose id is, or alone begins with, *run_id*; `last` is the newest.

    Raises:
        UsageError: no run, or more than one, has such an id.
        SparkDeployError: it cannot be read.
    """
    folders = sorted(_folders(environ))
    fitting = [folder for folder in folders if run_id and folder.name.startswith(run_id)]
    matching = folders[-1:] if run_id == "last" else fitting
    if not folders:
        raise UsageError("there are no runs yet", at=str(runs_folder(environ)))
    if not matching:
        hint = "`spark-deploy runs` lists them"
        raise UsageError(f"no run has an id that begins with {run_id!r}", hint=hint)
    if len(matching) > 1:
        raise UsageError(
            f"{len(matching)} runs have an id that begins with {run_id!r}",
            found=", ".join(folder.name for folder in matching[:5]) + (", …" if len(matching) > 5 else ""),
            hint="give more of the id",
        )
    found = _read(matching[0])
    if found.closed:
        raise _closed(found.folder, found.closed)
    return found


def _folders(environ: Mapping[str, str]) -> list[Path]:
    try:
        return [folder for folder in runs_folder(environ).iterdir() if RUN_ID.fullmatch(folder.name)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _closed(runs_folder(environ), error.strerror or "") from None


def _closed(folder: Path, why: str) -> SparkDeployError:
    hint = f"`ls -ld {folder}` shows whose it is: a run by `sudo`?"
    return SparkDeployError(f"{folder} cannot be read", found=why, hint=hint)


def _read(folder: Path) -> Run:
    info, closed = _info(folder)
    return Run(
        id=folder.name,
        folder=folder,
        closed=closed,
        at=info["at"] if isinstance(info.get("at"), (int, float)) else 0,
        events=tuple(_events(folder)),
        argv=tuple(str(word) for word in info.get("argv") or ()),
        **{name: str(info.get(name, "")) for name in ("command", "deployment", "release", "version", "out")},
    )


def _info(folder: Path) -> tuple[dict[str, Any], str]:
    """Give what run.json says, and why it cannot be read; a torn run has none, or half of one."""
    try:
        info = json.loads((folder / "run.json").read_bytes())
    except (FileNotFoundError, ValueError):
        return {}, ""
    except OSError as error:
        return {}, error.strerror or type(error).__name__
    return (info if isinstance(info, dict) else {}), ""


def _events(folder: Path) -> Iterator[Event]:
    """Skip what is no whole event: the last line of a killed run, a line cut by a full disk."""
    try:
        lines = (folder / "events.jsonl").read_bytes().split(b"\n")
    except OSError:
        return
    for line in lines:
        with suppress(ValueError, AttributeError):
            yield from_mapping(json.loads(line))
