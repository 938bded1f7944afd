"""A node in memory: answers by what a script says, files in a dict, and a record of all that was asked of it."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.errors import UnreachableError
from orchestrator.remote.host import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator.model.inventory import Node
    from orchestrator.shell import NodePath

DONE = Outcome(0, "", "")
CANCELLED = Outcome(143, "", "")


@dataclass
class FakeHost:
    """
    Implements remote.host.Host.

    `answer("docker run", Outcome(1, "", "no such image"))` answers every script with that text, the
    latest rule first; `once=True` only the next one; a script without a rule is DONE. `block("sleep")`
    makes such a script run until cancel(); `started` is set when it does.
    `lose()` takes the connection away until reconnect() (`for_good=True`: it then fails, too).
    """

    node: Node
    files: dict[str, bytes] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    scripts: list[str] = field(default_factory=list)  # as they were asked to run
    calls: list[str] = field(default_factory=list)  # "run …first line", "put PATH", "read PATH", "cancel", …
    containers: dict[str, dict[str, Any]] = field(default_factory=dict)
    container_logs: dict[str, bytes] = field(default_factory=dict)
    services: dict[tuple[str, int], tuple[str, int]] = field(
        default_factory=dict
    )  # asked address -> real one
    started: threading.Event = field(default_factory=threading.Event)
    closed: bool = False
    lost: bool = False
    gone_for_good: bool = False
    _rules: list[tuple[str, Any, bool]] = field(default_factory=list)
    _cancelled: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def address(self) -> str:
        return self.node.ssh

    def answer(self, text: str, what: Any, *, once: bool = False) -> None:
        """Answer scripts that contain *text* with an Outcome, an exception, or a function of the script."""
        self._rules.insert(0, (text, what, once))

    def block(self, text: str) -> None:
        """Let scripts that contain *text* run until cancel()."""
        self.answer(text, self._until_cancelled)

    def lose(self, *, for_good: bool = False) -> None:
        self.lost = True
        self.gone_for_good = for_good

    def run(self, script: str, *, timeout_s: float, on_line: Callable[[str], None] | None = None) -> Outcome:
        self._note("run", script.strip().partition("\n")[0])
        self.scripts.append(script)
        outcome = self._answer_to(script)
        for line in (outcome.stdout + outcome.stderr).splitlines() if on_line else ():
            on_line(line)
        return outcome

    def put(self, path: NodePath, content: bytes, mode: int = 0o644) -> None:
        self._note("put", path)
        what = self._rule_for(f"put {path}")
        if isinstance(what, Exception):
            raise what
        self.files[str(path)] = content
        self.modes[str(path)] = mode

    def read(self, path: NodePath) -> bytes | None:
        self._note("read", path)
        return self.files.get(str(path))

    def open_tcp(self, address: str, port: int, timeout_s: float) -> socket.socket:
        """A real connection to what *services* says stands there. Raises ConnectionRefusedError: nothing."""
        self._note("open_tcp", f"{address}:{port}")
        place = self.services.get((address, port))
        if place is None:
            raise ConnectionRefusedError(111, f"{address}:{port}")
        return socket.create_connection(place, timeout_s)

    def docker(self) -> FakeHost:
        return self

    def container(self, name: str) -> dict[str, Any] | None:
        self._note("container", name)
        return self.containers.get(name)

    def logs(self, name: str, *, follow: bool = False, tail: int | None = None) -> Iterator[bytes]:
        self._note("logs", name)
        lines = self.container_logs.get(name, b"").splitlines(keepends=True)
        yield from lines if tail is None else lines[len(lines) - min(tail, len(lines)) :]

    def alive(self) -> bool:
        return not (self.lost or self.closed)

    def reconnect(self) -> None:
        self.calls.append("reconnect")
        if self.gone_for_good:
            raise UnreachableError(f"{self.node.name} cannot be reached", at=self.node.name)
        self.lost = False

    def cancel(self) -> None:
        self.calls.append("cancel")
        self._cancelled.set()

    def close(self) -> None:
        self.closed = True

    def _note(self, verb: str, what: str) -> None:
        self.calls.append(f"{verb} {what}")
        if self.lost or self.closed:
            raise UnreachableError(f"the connection to {self.node.name} is lost", at=self.node.name)

    def _answer_to(self, script: str) -> Outcome:
        what = self._rule_for(script)
        if isinstance(what, Exception):
            raise what
        return what(script) if callable(what) else what or DONE

    def _rule_for(self, text: str) -> Any:
        with self._lock:
            for rule in self._rules:
                if rule[0] in text:
                    if rule[2]:
                        self._rules.remove(rule)
                    return rule[1]
        return None

    def _until_cancelled(self, _script: str) -> Outcome:
        self.started.set()
        self._cancelled.wait(30)
        self._cancelled.clear()
        return CANCELLED


class Clock:
    """Each look at it is half a minute later, so that no test waits for a limit."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 30
        return self.now
