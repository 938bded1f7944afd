"""What will be done, as data: it can be shown, compared and carried out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from orchestrator.model.release import ReleaseFile
    from orchestrator.shell import NodePath


@dataclass(frozen=True)
class Script:
    """A bash script, run as the login user with no standard input, ended after *timeout_s*."""

    text: str
    timeout_s: float


@dataclass(frozen=True)
class Upload:
    """Files that will lie under *folder*, written beside it and renamed into place."""

    folder: NodePath
    files: tuple[ReleaseFile, ...]


@dataclass(frozen=True)
class UploadSecrets:
    """Write `secrets.env` (0600) under *folder*, or put the one found before back; values are not part of a plan."""

    folder: NodePath
    names: tuple[str, ...]
    restore: bool = False


@dataclass(frozen=True)
class Watch:
    """Follow the supervisors until *until*; changes nothing."""

    until: Literal["joined", "ready"]
    limit_s: float


@dataclass(frozen=True)
class Endpoint:
    """Where the head reaches a served model itself, and what it is called there."""

    model: str
    address: str
    port: int


@dataclass(frozen=True)
class Complete:
    """
    Stream one completion through the head's SSH connection; changes nothing.

    *before* is the endpoint that the release before this run had; None: the one that is being put up.
    """

    limit_s: float
    before: Endpoint | None = None


Work = Script | Upload | UploadSecrets | Watch | Complete


@dataclass(frozen=True)
class Action:
    """One piece of work on one node."""

    node: str
    title: str
    work: Work


@dataclass(frozen=True)
class Step:
    """Actions that run on their nodes side by side; the next step waits for all of them."""

    name: str
    title: str
    actions: tuple[Action, ...]


@dataclass(frozen=True)
class Plan:
    """
    Steps in order, and the steps that lead back should one of them fail.

    *lock* comes first and changes nothing but the lock; *unlock* comes last whatever happened. *undone* says
    what runs after the way back.
    """

    title: str
    steps: tuple[Step, ...]
    undo: tuple[Step, ...] = ()
    undone: str = ""
    lock: tuple[Step, ...] = ()
    unlock: tuple[Step, ...] = ()
