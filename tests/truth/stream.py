"""One answer: every event is written with one send() at its own absolute deadline, so that nothing drifts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .clock import now
from .events import DONE, PING, Events, Kind
from .faults import STRIKES
from .http import LAST_CHUNK, STREAM_HEAD, answer, chunk, cut, unframed
from .record import HARMLESS, Record

if TYPE_CHECKING:
    from .options import Fault
    from .server import Connection, Server

SPLIT_S = 0.0003


class Stream:
    """From its request to its last byte. *record* gets the truth."""

    __slots__ = (
        *("server", "engine", "options", "connection", "record", "events", "fault", "usage", "done"),
        *("step", "steps", "itl", "headed", "left"),
    )

    def __init__(
        self,
        server: Server,
        connection: Connection,
        record: Record,
        events: Events,
        fault: Fault | None,
        *,
        usage: bool,
    ) -> None:
        self.server, self.engine, self.options = server, server.engine, server.engine.options
        self.connection, self.record, self.events = connection, record, events
        self.fault, self.usage = fault, usage
        sizes = self.options.tokens_per_chunk
        self.steps = sizes if isinstance(sizes, list) else [sizes]
        self.step, self.itl, self.headed, self.done = 0, 0.0, False, False
        self.left = fault.byte if fault else None  # bytes until the fault

    # ------------------------------------------------------------------ before the first token

    def begin(self) -> None:
        if self.engine.admit(self):
            self.start(self.record.t_recv)
        options = self.options
        if not self.record.stream or self._is("slow_headers"):
            return
        early = options.role_chunk == "immediate" and self.events.chat
        if early or options.headers == "immediate" or options.ping:
            self._write(self.events.role() if early else b"")
        if options.ping:
            self.server.timeline.at(self.record.t_recv + options.ping, Stream._pinged, self)

    def start(self, moment_s: float) -> None:
        """Its turn has come at *moment_s*."""
        self.engine.totals.queue_s += moment_s - self.record.t_recv
        if self.options.curve:
            read_off = moment_s + self.options.settle / self.options.speed
            self.server.timeline.at(read_off, lambda stream, _: stream._planned(moment_s), self)
        else:
            self._planned(moment_s)

    def _planned(self, moment_s: float) -> None:
        record, options = self.record, self.options
        record.in_flight = max(1, self.engine.running)
        ttft, self.itl = options.pace(record.in_flight)
        if options.cold and record.number < options.cold["n"]:
            ttft, record.cold = options.cold["ttft"], True
        if self._is("slow_headers"):
            ttft += self.fault.s
        if record.stream:
            self.server.timeline.at(moment_s + ttft, Stream.emitted, self)
        else:
            self.server.timeline.at(moment_s + ttft + self.itl * (record.n - 1), Stream._answered, self)

    def _pinged(self, due_s: float) -> None:
        if not self.done and not self.record.sent:
            self._write(PING)
            self.server.timeline.at(due_s + self.options.ping, Stream._pinged, self)

    # ------------------------------------------------------------------ tokens

    def emitted(self, due_s: float) -> None:
        if self.done:
            return
        record, sent = self.record, self.record.sent
        if self.fault is not None and self.left is None and sent >= self.fault.at and self._goes_wrong(due_s):
            return
        kind, n = self.next_event()
        last = sent + n >= record.n
        apart = self.options.finish == "apart"
        data = self.events.tokens(kind, n, sent + n, self._finish_reason() if last and not apart else None)
        if not sent and self.events.chat and self.options.role_chunk == "with_first":
            data = self.events.role() + data
        if self.options.split:
            data = self._first_half(data)
        record.sent = sent + n
        self.step += 1
        moment = now()
        self._write(data)
        self._note(moment, due_s, n)
        if self.done:
            return
        if last:
            self._close()
        else:
            self.server.timeline.at(self._next_step(due_s), Stream.emitted, self)

    def next_event(self) -> tuple[Kind, int]:
        """Kind and size of the next event; none has tokens of two kinds."""
        sent, total = self.record.sent, self.record.n
        n = min(self.steps[self.step % len(self.steps)], total - sent)
        if sent < self.options.reasoning:
            return "reasoning", min(n, self.options.reasoning - sent)
        if not self.options.tools:
            return "content", n
        tools_from = total - self.options.tools
        return ("content", min(n, tools_from - sent)) if sent < tools_from else ("tool", n)

    def _next_step(self, due_s: float) -> float:
        if not self.options.sync or self.itl <= 0:
            return due_s + self.itl
        return (int(due_s / self.itl + 0.5) + 1) * self.itl  # all streams share one grid

    def _note(self, moment: float, due_s: float, n: int) -> None:
        record, totals = self.record, self.engine.totals
        if record.t_first is None:
            record.t_first = moment
            totals.first_tokens += 1
            totals.ttft_s += moment - record.t_recv
        record.t_last = moment
        record.chunks.append(moment)
        record.tokens.append(n)
        record.late_max_s = max(record.late_max_s, moment - due_s)
        totals.generated += n
        totals.steps += 1

    def _finish_reason(self) -> str | None:
        if self._is("no_finish"):
            return None
        return "length" if self.record.n >= self.record.asked else "stop"

    def _close(self) -> None:
        """Usage, [DONE] and the end, in one send as vLLM's last chunks mostly come."""
        record = self.record
        out = b""
        if self.options.finish == "apart":
            out += self.events.tokens("content", 0, record.sent, self._finish_reason())
        if self.usage:
            out += self.events.closing_usage(record.sent + (self.fault.by if self._is("miscount") else 0))
        record.whole = self.fault is None or self.fault.kind in HARMLESS
        self.finish()  # before the client can send its next request
        self._write(out + (b"" if self._is("no_done") else DONE) + LAST_CHUNK)
        self.server.answered(self.connection)

    def _answered(self, _: float) -> None:
        """All at once: the request did not ask for a stream."""
        if self.done:
            return
        record, events = self.record, self.events
        record.sent, record.whole, record.t_last = record.n, True, now()
        self.engine.totals.generated += record.n
        text = {"message": {"role": "assistant", "content": self.options.word * record.n}}
        text = text if events.chat else {"text": self.options.word * record.n}
        usage = {"prompt_tokens": record.prompt_tokens, "completion_tokens": record.n}
        content = {
            "id": events.id,
            "object": "chat.completion" if events.chat else "text_completion",
            "created": 1700000000,
            "model": self.options.model,
            "choices": [{"index": 0, **text, "finish_reason": self._finish_reason()}],
            "usage": usage | {"total_tokens": record.prompt_tokens + record.n},
        }
        if "usage" in self.options.without:
            del content["usage"]
        self.finish()
        self.server.send(self.connection, answer(200, content))
        self.server.answered(self.connection)

    # ------------------------------------------------------------------ writing

    def _write(self, data: bytes) -> None:
        """Framed *data*, after the head where none was sent; a fault that counts bytes strikes here."""
        head = b"" if self.headed else STREAM_HEAD
        if head:
            self.headed, self.record.t_head = True, now()
        if self.left is None:
            self.server.send(self.connection, head + data, self.record)
        elif self._is("truncate"):
            kept, size = cut(data, self.left)
            self.left -= size
            self.server.send(self.connection, head + kept, self.record)
            if not self.left or self.done:
                self.end_early()
        else:
            self.server.send(self.connection, (head + data)[: self.left], self.record)
            self.left -= min(self.left, len(head + data))
            if not self.left:
                self.cut_off()

    def _first_half(self, data: bytes) -> bytes:
        """Sends half of *data*'s body, waits, and gives the other half."""
        body = unframed(data)
        half = len(body) // 2
        self._write(chunk(body[:half]))
        time.sleep(SPLIT_S)
        return chunk(body[half:])

    def finish(self) -> None:
        if self.done:
            return
        self.done, self.connection.stream = True, None
        self.record.t_end = now()
        self.engine.count_stream(self.record)
        if (following := self.engine.leave(self)) is not None:
            following.start(now())

    # ------------------------------------------------------------------ faults

    def _is(self, kind: str) -> bool:
        return self.fault is not None and self.fault.kind == kind

    def _goes_wrong(self, due_s: float) -> bool:
        """Whether the fault strikes before the next token."""
        strike = STRIKES.get(self.fault.kind)
        if strike is None:
            return False
        strike(self, due_s)
        return True

    def cut_off(self) -> None:
        self.finish()
        self.server.drop(self.connection, reset=self.fault.reset)

    def end_early(self, data: bytes = b"") -> None:
        self.finish()
        head = b"" if self.headed else STREAM_HEAD
        self.server.send(self.connection, head + data + LAST_CHUNK)
        self.server.answered(self.connection)
