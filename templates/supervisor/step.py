"""One step of a machine: `Seen` is what it is given, each `Effect` something to do. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from supervisor.settings import Desired
from supervisor.watching import Activity, Counters

if TYPE_CHECKING:
    from collections.abc import Mapping

    from supervisor.attempts import Attempts, Failure
    from supervisor.hearing import PeerView

Question = Literal["port", "members", "health", "watch", "probe", "cache", "clean"]


@dataclass(frozen=True)
class Ask:
    """Find something out in a thread of its own; the `Answer` with this *number* comes in a later step."""

    number: int
    question: Question
    limit_s: float


@dataclass(frozen=True)
class Answer:
    number: int
    question: Question
    value: Any = None
    error: str = ""


@dataclass(frozen=True)
class Clean:
    """Keep the evidence if there is a *failure*, end every other process of the container, empty its folders."""

    number: int
    failure: Failure | None


@dataclass(frozen=True)
class StartRay:
    session: str


@dataclass(frozen=True)
class StartEngine:
    session: str


@dataclass(frozen=True)
class SaveAttempts:
    attempts: Attempts


Effect = Ask | Clean | StartRay | StartEngine | SaveAttempts


@dataclass(frozen=True)
class Watch:
    """One look at a serving engine: the status of /health, and /metrics where there is one."""

    health: int
    counters: Counters | None = None


@dataclass(frozen=True)
class Seen:
    """What the world looks like in one step."""

    desired: Desired = field(default_factory=Desired)
    token: bool = True
    address_error: str = ""  # why the heartbeat's socket is not there
    peers: Mapping[str, PeerView] = field(default_factory=dict)
    foreign_release: Mapping[str, str] = field(default_factory=dict)
    exits: Mapping[str, int] = field(default_factory=dict)  # child name to exit code
    lines: tuple[tuple[str, str], ...] = ()  # child name, line
    answers: tuple[Answer, ...] = ()
    activity: Activity = field(default_factory=Activity)
    available_kb: int = 0
