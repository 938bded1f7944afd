"""A server under load: its first request, the warm-up wave of a level, one repeat of it."""

from __future__ import annotations

import random
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from orchestrator.bench import counters
from orchestrator.bench.gates import judge
from orchestrator.bench.measure import measure
from orchestrator.bench.stream import Wanted, read
from orchestrator.client.api import Api
from orchestrator.client.drive import closed_loop, open_loop, run
from orchestrator.client.prompts import bodies
from orchestrator.client.server import api_path
from orchestrator.errors import SparkDeployError, UnreachableError
from orchestrator.model.bench import Cold
from orchestrator.run.outlook import WARM_UP_TOKENS, planned
from orchestrator.run.telemetry import Telemetry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator.bench.counters import Counters, Gauges
    from orchestrator.client.abilities import Capabilities
    from orchestrator.client.drive import Driven, Ticks
    from orchestrator.client.server import Server
    from orchestrator.model.bench import Level, Load, Repeat, Request

    Progress = Callable[[Ticks], None]

MOST_IN_FLIGHT = 256  # of an open loop: sockets that are opened before its clock starts
SETTLE_S, SETTLE_TRIES = 0.2, 10  # a server counts a token some time after it has sent it
SAMPLE_S = 1.0
HEALTH_LIMIT_S = 10


@dataclass
class LoadedServer:
    """*known* is what the server can do. *salt* is new for every run: no prompt may be one that was asked before."""

    server: Server
    known: Capabilities
    load: Load
    salt: str
    through: str = ""
    telemetry: Telemetry = field(default_factory=Telemetry)

    @property
    def api(self) -> Api:
        return Api(self.server)

    def first_request(self) -> Driven:
        """Send one request to a server of which nothing else was asked yet; `cold` reads it."""
        return run(closed_loop(self.server, self._path, self._bodies("cold", 1), 1, requests=1))

    def cold(self, driven: Driven) -> Cold:
        (request,) = self._read(driven)
        zero_s, arrivals_s = request.sent_s, request.arrivals_s or (request.sent_s,)
        return Cold(arrivals_s[0] - zero_s, arrivals_s[-1] - zero_s, request.failure or "")

    def warm_up(self, level: Level, number: int, progress: Progress | None = None) -> int:
        """Send one wave of short requests, as many at once as the level will have, and give their number."""
        wave = level.concurrency or min(planned(level, self.load) or 1, 4)
        short = replace(self.load, output_tokens=min(WARM_UP_TOKENS, self.load.output_tokens))
        asked = self._bodies(f"{level.name}-warm-{number}", wave, short)
        with _at(level, self.server):
            run(closed_loop(self.server, self._path, asked, wave, requests=wave, on_progress=progress))
        return wave

    def repeat(
        self, level: Level, number: int, progress: Progress | None = None
    ) -> tuple[Repeat, tuple[Request, ...]]:
        """
        Run *level* once. The prompts begin anew in every repeat and run.

        Raises:
            UnreachableError: the server died.
        """
        with _at(level, self.server):
            before = self._settled()
            self.telemetry.begin()
            with self._sampled() as samples:
                driven = self._drive(level, number, progress)
            nodes = self.telemetry.taken()
            requests = self._read(driven)
            self._refuse_dead(requests)
            server = counters.delta(before, self._settled(), samples)
        measured = measure(
            requests,
            level,
            self.load,
            started=driven.started,
            last_dispatch_s=(driven.last_dispatch_ns - driven.zero_ns) / 1e9,
            client=driven.client,
            server=server,
            nodes=nodes,
        )
        judged = judge(measured, level, self.load, exact=self.known.exact, through=self.through)
        return judged, requests

    @property
    def _path(self) -> str:
        return api_path(self.server, self.known.path)

    def _bodies(self, phase: str, count: int | None, load: Load | None = None) -> Iterator[bytes]:
        """Made before the clock starts where their number is known."""
        salt = f"{self.salt}-{phase}"
        made = bodies(self.known, load or self.load, seed=self.load.seed, salt=salt, count=count)
        return made if count is None else iter(list(made))

    def _drive(self, level: Level, number: int, progress: Progress | None) -> Driven:
        count, asked = planned(level, self.load), f"{level.name}-{number}"
        to, made = (self.server, self._path), self._bodies(asked, count)
        if level.rate is None:
            wait_s = self.load.duration_s
            loop = closed_loop(
                *to, made, level.concurrency, requests=count, duration_s=wait_s, on_progress=progress
            )
        else:
            due_s = arrivals(level.rate, count or 1, f"{self.load.seed} {asked}")
            loop = open_loop(*to, made, due_s, max_in_flight=MOST_IN_FLIGHT, on_progress=progress)
        return run(loop)

    def _read(self, driven: Driven) -> tuple[Request, ...]:
        wanted = Wanted(self.load.output_tokens, exact=self.known.exact, usage=self.known.usage)
        requests = (read(one, wanted, driven.zero_ns) for one in driven.received)
        return tuple(sorted(requests, key=lambda request: request.sent_s))

    def _settled(self) -> Counters | None:
        """Read the counters, until no more tokens are counted in."""
        text = self.api.metrics()
        if text is None:
            return None
        found = counters.parse(text)
        for _ in range(SETTLE_TRIES):
            time.sleep(SETTLE_S)
            last, found = found, counters.parse(self.api.metrics() or "")
            if last.generation_tokens == found.generation_tokens:
                break
        return found

    @contextmanager
    def _sampled(self) -> Iterator[list[Gauges]]:
        """Read the gauges once a second, in a thread."""
        samples: list[Gauges] = []
        over = threading.Event()

        def sample() -> None:
            while not over.wait(SAMPLE_S):
                with suppress(SparkDeployError):
                    text = self.api.metrics()
                    if text is None:
                        return
                    samples.append(counters.gauges(text))

        thread = threading.Thread(target=sample, name="gauges", daemon=True)
        thread.start()
        try:
            yield samples
        finally:
            over.set()
            thread.join(SAMPLE_S)  # no longer: who presses Ctrl-C shall not wait for a server that hangs

    def _refuse_dead(self, requests: tuple[Request, ...]) -> None:
        """Raise UnreachableError where broken requests mean that the server is gone, not that it is bad."""
        lost = next((request for request in requests if request.failure), None)
        if lost and self.api.ask("GET", f"{self.server.path}/health", limit_s=HEALTH_LIMIT_S).status == 503:
            raise UnreachableError("its engine is dead: /health answers 503", found=lost.detail)


def arrivals(rate: float, count: int, seed: str) -> tuple[float, ...]:
    """When *count* requests are due, in seconds: a Poisson process of *rate* per second."""
    chance = random.Random(seed)  # noqa: S311  # arrivals, not secrets
    return tuple(accumulate(chance.expovariate(rate) for _ in range(count)))


def title(level: Level) -> str:
    return f"concurrency {level.concurrency}" if level.rate is None else f"{level.rate:g} requests a second"


@contextmanager
def _at(level: Level, server: Server) -> Iterator[None]:
    """Name the level at which the server was lost."""
    try:
        yield
    except UnreachableError as error:
        raise UnreachableError(
            f"the server was lost at {title(level)}: {error.message}",
            at=error.at or server.url,
            found=error.found,
        ) from error
