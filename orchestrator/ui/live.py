"""For a terminal: one moving line per node under the lines of what is done."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO, cast

from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from orchestrator.ui import plain
from orchestrator.ui.printable import duration, one_line
from orchestrator.ui.streams import Patient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType

    from orchestrator.model.event import Event, Sink

# A terminal echoes ^C where the cursor stands, at the end of the last line: in a line that is full it would wrap, and
# the lines that are drawn next would begin one too low.
ECHO_WIDTH = 7
_LASTING = {
    "started": ("", "bold"),
    "action-failed": ("✗", "bold red"),
    "undo-started": ("↩", "bold yellow"),
    "warning": ("!", "yellow"),
}
_ASCII = {"✓": "+", "✗": "x", "↩": "<"}


@contextmanager
def live(
    stream: TextIO,
    *,
    colour: bool,
    clock: Callable[[], float] = time.monotonic,
    screens: Callable[[Console, Callable[[], float]], Screen] | None = None,
) -> Iterator[Sink]:
    """Give a sink that draws on *stream*, and take the moving lines away at the end, whatever happened."""
    file = cast("TextIO", Patient(stream))
    console = Console(file=file, force_terminal=True, no_color=not colour, highlight=False, emoji=False)
    screen = (screens or Screen)(console, clock)
    try:
        yield screen
    finally:
        screen.rest()


@dataclass(frozen=True)
class Row:
    """What one node is doing: *began* on our clock, so that the time runs on between two events."""

    text: str
    style: str
    began: float
    limit_s: float | None = None
    ended: float | None = None


class Screen:
    """
    Draws only while a step runs, so that a question can be asked between two steps.

    Everything that lasts is printed above the moving lines.
    """

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        self._console = console
        self._clock = clock
        self._live: Live | None = None
        self._spinner = Spinner("dots" if _unicode(console) else "line")
        self._step = Row("", "", clock())
        self._rows: dict[str, Row] = {}
        self._titles: dict[tuple[str, str], str] = {}

    def __call__(self, event: Event) -> None:
        drawn: dict[str, Sink] = {
            "step-started": self._step_started,
            "action-started": self._action_started,
            "progress": self._progressed,
            "action-done": self._action_done,
            "step-done": self._step_done,
            "error": lambda _: self.rest(),
            "finished": lambda _: self.rest(),
        }
        drawn.get(event.kind, self._told)(event)

    def rest(self) -> None:
        """Take the moving lines away, until something moves again."""
        if self._live:
            self._live.stop()
        self._live = None
        self._rows = {}

    def __rich__(self) -> RenderableType:
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.width = max(self._console.width - ECHO_WIDTH, 20)
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        grid.add_column(no_wrap=True, justify="right")
        for node, row in list(self._rows.items()):
            grid.add_row(Text(f"  {node}", "bold"), Text(row.text, row.style), Text(self._time(row), "dim"))
        text = Text(f"{self._step.text}  {self._time(self._step)}")
        text.truncate(grid.width - 2, overflow="ellipsis")
        self._spinner.update(text=text)
        return Group(self._spinner, grid)

    def _told(self, event: Event) -> None:
        """Print what lasts above the moving lines."""
        sign, style = _LASTING.get(event.kind, ("", ""))
        text = one_line(event.text) or (plain.started(event) if event.kind == "started" else "")
        if event.kind == "action-failed":
            text = f"{self._title(event)}: {text}"
        self._above(self._signed(sign) + plain.of_node(event, text), style)

    def _step_started(self, event: Event) -> None:
        self._rows = {}
        self._step = Row(one_line(event.text) or event.step, "", self._clock())
        self._draw()

    def _action_started(self, event: Event) -> None:
        self._titles[event.step, event.node] = one_line(event.text)
        self._move(event, Row(one_line(event.text), "", self._clock()))

    def _progressed(self, event: Event) -> None:
        began = self._clock() - event.data.get("elapsed_s", 0)
        self._move(event, Row(plain.progress(event), "cyan", began, event.data.get("limit_s")))

    def _action_done(self, event: Event) -> None:
        now = self._clock()
        text = f"{self._signed('✓')}{self._title(event)}"
        self._move(event, Row(text, "green", now - event.data.get("elapsed_s", 0), ended=now))

    def _step_done(self, event: Event) -> None:
        self._above(f"{self._signed('✓')}{self._step.text}{plain.took(event)}", "green")
        self.rest()

    def _title(self, event: Event) -> str:
        return self._titles.get((event.step, event.node), event.step)

    def _move(self, event: Event, row: Row) -> None:
        if event.node:
            self._rows[event.node] = row
        else:
            self._step = row
        self._draw()

    def _draw(self) -> None:
        if self._live is None:
            self._live = Live(self, console=self._console, transient=True, refresh_per_second=4)
            self._live.start()
        self._live.refresh()

    def _above(self, text: str, style: str) -> None:
        self._console.print(Text(text, style))

    def _time(self, row: Row) -> str:
        elapsed = duration(max((row.ended or self._clock()) - row.began, 0))
        return elapsed if row.limit_s is None else f"{elapsed} of {duration(row.limit_s)}"

    def _signed(self, sign: str) -> str:
        return f"{sign if _unicode(self._console) else _ASCII.get(sign, sign)} " if sign else ""


def _unicode(console: Console) -> bool:
    return console.encoding.startswith("utf")
