"""For a terminal: the table of levels as it grows, and under it what is running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from orchestrator.ui.live import ECHO_WIDTH, Screen
from orchestrator.ui.printable import duration, one_line
from orchestrator.ui.report.table import lines, number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.model.event import Event

_BAR_WIDTH = 16
_WIDE = 110  # columns in which the bar and the whole title fit
_STYLES = {"INVALID": "red"}


class Growing(Screen):
    """One line a level; a level that is repeated once more gets its line anew. What lasts is printed above."""

    def __init__(self, console: Console, clock: Callable[[], float]) -> None:
        super().__init__(console, clock)
        self._levels: dict[str, Mapping[str, Any]] = {}
        self._level = ""
        self._now: Mapping[str, Any] = {}

    def __call__(self, event: Event) -> None:
        super().__call__(event)
        if event.kind == "error":  # what is measured so far is worth seeing
            for line in self.table():
                self._console.print(line)

    def __rich__(self) -> RenderableType:
        return Group(*self.table(), self._running())

    def table(self) -> list[Text]:
        if not self._levels:
            return []
        found = list(self._levels.values())
        heading, *others = lines(found, self._console.width - ECHO_WIDTH)
        styles = [_STYLES.get(row["status"], "") for row in found]
        return [
            Text(heading, "bold"),
            *(Text(line, style) for line, style in zip(others, styles, strict=True)),
        ]

    def _running(self) -> Table:
        """Give one line: what runs, how far it is, what comes out, and how long all of it will still take."""
        now, wide = self._now, self._console.width >= _WIDE
        what = self._level if wide else self._level.split(":")[0]
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_row(
            self._spinner,
            Text(f"{what}  {one_line(str(now.get('phase', '')))}".strip(), "cyan"),
            *_done(now, wide=wide),
            Text(f"{number(now.get('tok_s'))} tok/s" if now.get("tok_s") else ""),
            Text(f"{duration(now['left_s'])} left" if now.get("left_s") is not None else "", "dim"),
        )
        for column in grid.columns:
            column.no_wrap = True
        return grid

    def _step_started(self, event: Event) -> None:
        self._level, self._now = one_line(event.text), {}
        self._draw()

    def _progressed(self, event: Event) -> None:
        self._now = event.data
        self._draw()

    def _step_done(self, event: Event) -> None:
        if row := event.data.get("row"):
            self._levels[event.step] = row
        self._level, self._now = "", {"left_s": event.data.get("left_s")}
        self._draw()


def _done(now: Mapping[str, Any], *, wide: bool) -> tuple[RenderableType, ...]:
    done, total = now.get("done"), now.get("total")
    if done is None:
        return ()
    if not total:
        return (Text(f"{done} requests"),)
    bar = (ProgressBar(total=total, completed=done, width=_BAR_WIDTH),) if wide else ()
    return (*bar, Text(f"{done}/{total}"))
