"""One line per event, for CI and for a terminal that cannot move its cursor."""

from __future__ import annotations

from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, TextIO

from orchestrator.ui.printable import duration, one_line, printable
from orchestrator.ui.streams import write

if TYPE_CHECKING:
    from orchestrator.model.event import Event, Sink

_WORDS = {
    "started": "started",
    "step-started": "step",
    "action-started": "begin",
    "progress": "progress",
    "action-done": "done",
    "action-failed": "FAILED",
    "step-done": "step done",
    "undo-started": "undo",
    "note": "note",
    "warning": "WARNING",
    "error": "ERROR",
    "finished": "finished",
}
_STARTED_WITH = ("inventory", "recipe", "release")


class Plain:
    """
    Writes `HH:MM:SS  word  what` (local time) to *stream*; a progress line only where its text changed.

    An `error` is left to `ui.errors.show` and the answer of `finished` to standard output, unless a
    run of the past is shown (*replay*).
    """

    def __init__(self, stream: TextIO, *, timezone: tzinfo | None = None, replay: bool = False) -> None:
        self._stream = stream
        self._timezone = timezone
        self._replay = replay
        self._titles: dict[tuple[str, str], str] = {}
        self._progress: dict[str, str] = {}

    def __call__(self, event: Event) -> None:
        text = self._text(event)
        if text is not None:
            at = datetime.fromtimestamp(event.at, self._timezone).strftime("%H:%M:%S")
            write(self._stream, f"{at}  {_WORDS.get(event.kind, event.kind):<9}  {text}".rstrip() + "\n")

    def _text(self, event: Event) -> str | None:
        """None for what is not shown."""
        text = one_line(event.text)
        match event.kind:
            case "error":
                return _indented(event.text) if self._replay else None
            case "progress":
                return self._progressed(event)
            case "started":
                text = text or started(event)
            case "step-started":
                text = f"{event.step}: {text}"
            case "step-done":
                text = (f"{event.step}: {text}" if text else event.step) + took(event)
            case "finished":
                answer = f"\n{printable(event.text)}" if self._replay and text else ""
                text = finished(event) + answer
            case _:
                text = self._about_node(event, text)
        return text

    def _about_node(self, event: Event, text: str) -> str:
        if event.kind == "action-started":
            self._titles[event.step, event.node] = text
        title = self._titles.get((event.step, event.node), event.step)
        if event.kind == "action-done":
            text = title + took(event)
        if event.kind == "action-failed":
            text = f"{title}: {text}"
        return of_node(event, text)

    def _progressed(self, event: Event) -> str | None:
        text = progress(event)
        if self._progress.get(event.node) == text:
            return None
        self._progress[event.node] = text
        return of_node(event, text) + limit(event)


def plain(stream: TextIO, *, timezone: tzinfo | None = None, replay: bool = False) -> Sink:
    return Plain(stream, timezone=timezone, replay=replay)


def started(event: Event) -> str:
    """`spark-deploy 0.1.0 up: inventory home.yaml, recipe qwen, release 0123456789ab`, of what is known."""
    words = ("spark-deploy", event.data.get("version"), event.data.get("command"))
    details = [f"{name} {event.data[name]}" for name in _STARTED_WITH if event.data.get(name)]
    return one_line(
        ": ".join(part for part in (" ".join(map(str, filter(None, words))), ", ".join(details)) if part)
    )


def finished(event: Event) -> str:
    code = event.data.get("exit_code", 0)
    return ("done" if code == 0 else f"exit code {code}") + took(event)


def progress(event: Event) -> str:
    """Phase and what is going on in it, each where there is one."""
    phase, text = one_line(str(event.data.get("phase", ""))), one_line(event.text)
    return f"{phase}: {text}" if phase and text and not text.startswith(phase) else text or phase


def of_node(event: Event, text: str) -> str:
    """Begin *text* with the node's name, unless it does so itself."""
    return f"{event.node}: {text}" if event.node and not text.startswith(event.node) else text


def limit(event: Event) -> str:
    elapsed, allowed = event.data.get("elapsed_s"), event.data.get("limit_s")
    of = "" if allowed is None else f" of {duration(allowed)}"
    return "" if elapsed is None else f" ({duration(elapsed)}{of})"


def took(event: Event) -> str:
    elapsed = event.data.get("elapsed_s")
    return "" if elapsed is None else f" ({duration(elapsed)})"


def _indented(text: str) -> str:
    return printable(text).replace("\n", "\n" + " " * 21)
