"""Keeps a level's requests in flight, and gives back what came on the wire. Nothing is parsed meanwhile."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from orchestrator.client.loop import together, undisturbed
from orchestrator.client.server import post_head, small_request, ssl_context
from orchestrator.client.stamps import Receiver
from orchestrator.client.wire import Connection, dial
from orchestrator.errors import UnreachableError
from orchestrator.model.bench import ClientHealth, Received

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence

    from orchestrator.client.server import Server
    from orchestrator.client.wire import End

    Found = TypeVar("Found")
    Progress = Callable[["Ticks"], None]

TAIL = 10  # values behind a percentile of lags
_LOOK_S = 0.25  # how often limits are looked at, and progress is told


@dataclass(frozen=True)
class Limits:
    """How long is waited: for a socket, the first token, the next bytes, the whole of a request."""

    connect_s: float = 10
    first_s: float = 600
    stall_s: float = 60
    total_s: float = 3600


@dataclass(frozen=True)
class Driven:
    """A level's requests, in the order in which they ended."""

    received: tuple[Received, ...]
    zero_ns: int  # the first send
    last_dispatch_ns: int
    started: float  # seconds since the epoch
    client: ClientHealth


@dataclass(frozen=True)
class Ticks:
    """How far a level is. *events* are pieces of bodies, about one per decoding step and request."""

    done: int
    in_flight: int
    events: int
    elapsed_s: float


def run(coroutine: Coroutine[Any, Any, Found]) -> Found:
    """Run on uvloop where it exists."""
    found: list[Found] = []

    async def kept() -> None:
        # No result of the task: asyncio.Runner (3.11) ends in signal.getsignal(), and that in an enum's ValueError
        # whose text is the repr of the task with its result. Of all bytes received that is a tenth of our CPU time.
        found.append(await coroutine)

    try:
        import uvloop
    except ImportError:
        asyncio.run(kept())
    else:
        uvloop.run(kept())
    return found[0]


async def closed_loop(
    server: Server,
    path: str,
    bodies: Iterator[bytes],
    concurrency: int,
    *,
    requests: int | None = None,
    duration_s: float | None = None,
    limits: Limits = Limits(),
    on_progress: Progress | None = None,
) -> Driven:
    """
    Keep *concurrency* requests in flight: each slot sends its next as soon as its last has ended.

    None is sent after *requests* or *duration_s*, whichever is first, but every slot sends one.

    Raises:
        UnreachableError: not all sockets could be opened.
    """
    level = _Level(server, path, bodies, limits)
    async with level.slots(concurrency, on_progress) as numbers:
        most = max(requests, concurrency) if requests is not None else None
        await together(level.keep_busy(number, most, duration_s) for number in numbers)
    return level.driven()


async def open_loop(
    server: Server,
    path: str,
    bodies: Iterator[bytes],
    due_s: Sequence[float],
    *,
    max_in_flight: int,
    limits: Limits = Limits(),
    on_progress: Progress | None = None,
) -> Driven:
    """
    Send a request at each of *due_s* (ascending). With *max_in_flight* under way, one is late: its schedule stays.

    Raises:
        UnreachableError: not all sockets could be opened.
    """
    level = _Level(server, path, bodies, limits)
    arrivals = iter(due_s)
    async with level.slots(min(max_in_flight, len(due_s)), on_progress) as numbers:
        await together(level.keep_schedule(number, arrivals) for number in numbers)
    return level.driven()


class _Level:
    def __init__(self, server: Server, path: str, bodies: Iterator[bytes], limits: Limits) -> None:
        self._server = server
        self._limits = limits
        self._bodies = bodies
        self._head = post_head(server, path)
        self._context = ssl_context(server)
        self._receiver = Receiver()
        self._of_slot: list[Connection | None] = []  # None: it broke within an exchange
        self._busy: set[Connection] = set()
        self._received: list[Received] = []
        self._dispatched = self._reopened = self._events = 0
        self._started_ns = 0
        self._started = self._cpu_s = 0.0

    @asynccontextmanager
    async def slots(self, count: int, on_progress: Progress | None) -> AsyncIterator[Sequence[int]]:
        """Open *count* sockets, then start the clock. All are closed at the end, whatever ends it."""
        try:
            await self._open(count)
            watch = asyncio.ensure_future(together((self._watch(on_progress), self._receiver.sample_lag())))
            try:
                with undisturbed():
                    self._started, self._cpu_s = time.time(), time.process_time()
                    self._started_ns = time.monotonic_ns()
                    yield range(count)
                    self._cpu_s = time.process_time() - self._cpu_s
            finally:
                watch.cancel()
                with suppress(asyncio.CancelledError):
                    await watch
        finally:
            for connection in filter(None, self._of_slot):
                connection.close()
            await asyncio.sleep(0)  # the loop closes what a transport aborted

    async def _open(self, count: int) -> None:
        self._of_slot = [None] * count
        try:
            await together(self._live(slot) for slot in range(count))
        except OSError as error:
            reason = error.strerror or error
            raise UnreachableError(f"no connection to {self._server.url}: {reason}") from error

    async def _dial(self) -> Connection:
        """Raises OSError."""
        try:
            return await asyncio.wait_for(self._dialled(), self._limits.connect_s)
        except asyncio.TimeoutError as error:  # no OSError in Python 3.10
            raise TimeoutError(f"no answer within {self._limits.connect_s:g} s") from error

    async def _dialled(self) -> Connection:
        """A forward's near end is open before the way to the server is: a small request opens that, untimed."""
        connection = await dial(self._server, self._context, self._receiver)
        if self._server.connect is None:
            return connection
        try:
            await connection.exchange(small_request(self._server))
        except asyncio.CancelledError:
            connection.close()
            raise
        return connection if connection.alive() else await dial(self._server, self._context, self._receiver)

    async def keep_busy(self, slot: int, most: int | None, duration_s: float | None) -> None:
        free_ns = self._started_ns
        while await self._send_next(slot, free_ns) and not self._over(most, duration_s):
            free_ns = self._received[-1].ended_ns

    def _over(self, most: int | None, duration_s: float | None) -> bool:
        enough = most is not None and self._dispatched >= most
        return enough or (duration_s is not None and self._elapsed_s() >= duration_s)

    async def keep_schedule(self, slot: int, arrivals: Iterator[float]) -> None:
        for due_s in arrivals:
            while (left_s := due_s - self._elapsed_s()) > 0:  # noqa: ASYNC110  # uvloop wakes up to 0.5 ms early
                await asyncio.sleep(left_s)
            if not await self._send_next(slot, self._started_ns + round(due_s * 1e9)):
                return

    def _elapsed_s(self) -> float:
        return (time.monotonic_ns() - self._started_ns) / 1e9

    async def _send_next(self, slot: int, scheduled_ns: int) -> bool:
        """Whether the slot goes on: not without a body, nor where no socket can be opened any more."""
        body = next(self._bodies, None)
        if body is None:
            return False
        self._dispatched += 1
        received = await self._request(slot, self._head % len(body) + body, scheduled_ns)
        self._received.append(received)
        self._events += len(received.reads)
        return received.end != "connect"

    async def _request(self, slot: int, request: bytes, scheduled_ns: int) -> Received:
        try:
            connection, end, detail = await self._answered(slot, request)
        except OSError as error:
            now_ns = time.monotonic_ns()
            return Received(scheduled_ns, now_ns, 0, (), now_ns, "connect", str(error), slot)
        answer = connection.answer
        ended_ns = connection.last_ns if end == "complete" else time.monotonic_ns()
        return Received(
            scheduled_ns, connection.sent_ns, answer.status, tuple(answer.reads), ended_ns, end, detail, slot
        )

    async def _answered(self, slot: int, request: bytes) -> tuple[Connection, End, str]:
        """Ask once, and once more where the server had closed the idle socket just then. Raises OSError."""
        connection = await self._live(slot)
        end, detail = await self._exchange(connection, request)
        if connection.died_idle:
            connection = await self._live(slot)
            end, detail = await self._exchange(connection, request)
        if end != "complete":
            self._of_slot[slot] = None
        return connection, end, detail

    async def _live(self, slot: int) -> Connection:
        """Give the slot's connection, opened anew if need be. Raises OSError."""
        connection = self._of_slot[slot]
        if connection and connection.alive():
            return connection
        if connection:
            connection.close()
            self._reopened += 1
        connection = self._of_slot[slot] = await self._dial()
        return connection

    async def _exchange(self, connection: Connection, request: bytes) -> tuple[End, str]:
        self._busy.add(connection)
        ended = await connection.exchange(request)
        self._busy.discard(connection)
        return ended

    async def _watch(self, on_progress: Progress | None) -> None:
        limits = self._limits
        look_s = min(_LOOK_S, limits.first_s / 4, limits.stall_s / 4, limits.total_s / 4)
        while True:
            await asyncio.sleep(look_s)
            self._receiver.check_clock()
            quiet_ns = time.monotonic_ns() - round(look_s * 1e9)
            for connection in tuple(self._busy):
                if overdue := _overdue(connection, limits):
                    connection.end(*overdue)
                elif connection.last_ns < quiet_ns:
                    connection.poke()
            if on_progress:
                on_progress(self._ticks())

    def _ticks(self) -> Ticks:
        under_way = sum(len(connection.answer.reads) for connection in self._busy)
        return Ticks(len(self._received), len(self._busy), self._events + under_way, self._elapsed_s())

    def driven(self) -> Driven:
        sent = [one.sent_ns for one in self._received if one.end != "connect"] or [self._started_ns]
        return Driven(tuple(self._received), min(sent), max(sent), self._started, self._health())

    def _health(self) -> ClientHealth:
        receiver = self._receiver
        late = sorted(receiver.lags_ns, reverse=True)
        # The p99, or the tenth of few: one pause of this machine is no tail.
        rank = min(max(len(late) // 100, TAIL), len(late)) - 1
        p99_ms, max_ms = (late[rank] / 1e6, late[0] / 1e6) if late else (None, None)
        stamps: Literal["kernel", "read"] = "kernel" if receiver.stamped else "read"
        return ClientHealth(p99_ms, max_ms, self._cpu_s, receiver.clock_jumps, self._reopened, stamps)


def _overdue(connection: Connection, limits: Limits) -> tuple[End, str] | None:
    now_ns = time.monotonic_ns()
    waited_s, quiet_s = (now_ns - connection.sent_ns) / 1e9, (now_ns - connection.last_ns) / 1e9
    if waited_s > limits.total_s:
        return "timeout", f"not complete after {limits.total_s:g} s"
    if waited_s > limits.first_s and not connection.begun():
        return "timeout", f"no token within {limits.first_s:g} s"
    if quiet_s > limits.stall_s and connection.begun():
        return "stall", f"nothing came for {limits.stall_s:g} s"
    return None
