"""What strikes a stream before a certain token; options.py says what each kind is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .events import DONE
from .http import chunk, unframed

if TYPE_CHECKING:
    from .stream import Stream


def stall(stream: Stream, due_s: float) -> None:
    pause_s, stream.fault = stream.fault.s, None
    stream.server.timeline.at(due_s + pause_s, type(stream).emitted, stream)


def disconnect(stream: Stream, _: float) -> None:
    stream.cut_off()


def truncate(stream: Stream, _: float) -> None:
    stream.end_early()


def cut_json(stream: Stream, _: float) -> None:
    kind, n = stream.next_event()
    body = unframed(stream.events.tokens(kind, n, stream.record.sent + n))
    stream.end_early(chunk(body[: len(body) // 2]))


def bad_json(stream: Stream, _: float) -> None:
    stream.end_early(chunk(b'data: {"id":"cmpl-1","choi\n\n') + DONE)


def error_event(stream: Stream, _: float) -> None:
    stream.end_early(stream.events.error(stream.fault.message) + DONE)


def die(stream: Stream, _: float) -> None:
    stream.server.die()


STRIKES: dict[str, Callable[[Stream, float], None]] = {
    strike.__name__: strike for strike in (stall, disconnect, truncate, cut_json, bad_json, error_event, die)
}
