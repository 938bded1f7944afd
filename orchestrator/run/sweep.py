"""The sweep: the first request, then level after level, told as it goes, each kept when it is whole."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.bench.summary import row, summed
from orchestrator.client.abilities import ending_early, probe
from orchestrator.errors import UnreachableError
from orchestrator.model.bench import LevelResult
from orchestrator.run.loaded import title
from orchestrator.run.outlook import Outlook, alone_s, expected_s, planned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orchestrator.bench.baseline import Baseline
    from orchestrator.client.drive import Driven, Ticks
    from orchestrator.model.bench import Cold, Level, Repeat, Request
    from orchestrator.model.event import Kind
    from orchestrator.run.loaded import LoadedServer
    from orchestrator.run.results import Folder

    Requests = tuple[Sequence[Request], ...]  # by repeat

PROGRESS_S = 1.0


class Told(Protocol):
    """Tells an event to the screen and the journal."""

    def __call__(self, kind: Kind, text: str = "", *, step: str = "", **data: Any) -> None: ...


@dataclass(frozen=True)
class Kept:
    """A whole level, and the requests of each of its repeats."""

    result: LevelResult
    requests: Requests


class Sweep:
    """*finished* completes a level's result, e.g. by its memory limit. *kept* is what there is so far."""

    def __init__(
        self,
        loaded: LoadedServer,
        tell: Told,
        folder: Folder,
        config_hash: str,
        completed: Callable[[LevelResult], LevelResult],
    ) -> None:
        self._loaded, self._tell, self._folder, self._hash = loaded, tell, folder, config_hash
        self._completed = completed
        self._outlook = Outlook({})
        self.kept: dict[str, Kept] = {}

    def first_request(self, log: Callable[[], Callable[[], str]]) -> Cold:
        """
        Time the very first request, and only then find out what the server can do.

        Where it was refused for a field, nothing was generated: it is sent once more, without the field.

        Raises:
            UsageError: the server does not generate.
            UnreachableError: it does not answer.
        """
        loaded = self._loaded
        self._tell("progress", "", step="cold", phase="first request")
        reason = log()
        driven, why = loaded.first_request(), reason()
        _refuse_silent(driven, loaded.server.url)
        loaded.known = probe(loaded.api, loaded.known, loaded.load)
        if loaded.cold(driven).failure == "http_4xx":
            driven, why = loaded.first_request(), reason()
        if loaded.cold(driven).failure == "short":
            loaded.known = ending_early(loaded.known)
        cold = replace(loaded.cold(driven), why=why)
        self._tell("note", _of_cold(cold))
        for sentence in loaded.known.fallbacks:
            self._tell("warning", sentence)
        return cold

    def foresee(self, levels: Sequence[Level], cold: Cold, baseline: Baseline | None) -> None:
        """Say how long it will take, by *baseline* where it has the level."""
        load, one_s = self._loaded.load, alone_s(cold)
        guesses = {level.name: expected_s(level, load, one_s, baseline) for level in levels}
        self._outlook = Outlook(guesses)
        whole_s = self._outlook.left_s()
        source = f"{baseline.name} and the first request" if baseline else "the first request alone"
        if whole_s is not None:
            text = f"expected: {_words(whole_s)} for all levels, an estimate from {source}"
            self._tell("note", text, expected_s=round(whole_s))

    def take_over(self, level: Level, earlier: Sequence[Folder]) -> bool:
        """Whether the level is whole and valid in one of *earlier*: it then counts as measured."""
        for folder in earlier:
            saved = folder.saved_level(self._hash, level)
            if saved and saved[0].valid:
                self._keep(saved[0], tuple(saved[1]))
                self._outlook.finish(level.name)
                self._tell_done(self.kept[level.name].result, 0, f"taken over from {folder.path}: ")
                return True
        return False

    def measure(self, level: Level) -> None:
        """Raises UnreachableError: the server died."""
        load = self._loaded.load
        count = planned(level, load)
        amount = f"{count} requests" if count else f"{load.duration_s:g} s"
        if load.requests and count and count > load.requests:
            amount += f" ({load.requests} would not fill it)"
        times = f" x {load.repeats}" if load.repeats > 1 else ""
        self._tell("step-started", f"{title(level)}: {amount}{times}", step=level.name)
        self._repeat(Kept(LevelResult(level, ()), ()), load.repeats)

    def once_more(self, name: str) -> None:
        """Repeat a level that is kept already. Raises UnreachableError."""
        kept = self.kept[name]
        number = len(kept.result.repeats) + 1
        self._tell("step-started", f"{title(kept.result.level)}: undecided, repeat {number}", step=name)
        self._repeat(kept, number)

    def _repeat(self, kept: Kept, until: int) -> None:
        """Warm up, and measure until there are *until* repeats."""
        began, level, first = time.monotonic(), kept.result.level, len(kept.result.repeats)
        warm_ups = self._loaded.warm_up(level, first, self._progress(level, "warm-up", began))
        repeats: list[Repeat] = list(kept.result.repeats)
        requests: list[Sequence[Request]] = list(kept.requests)
        for number in range(first, until):
            progress = self._progress(level, f"repeat {number + 1} of {until}", began)
            repeat, asked = self._loaded.repeat(level, number, progress)
            repeats.append(repeat)
            requests.append(asked)
        warm_ups += kept.result.warmup_requests
        result = LevelResult(level, tuple(repeats), summed(repeats), warm_ups)
        self._keep(self._completed(result), tuple(requests))
        self._outlook.finish(level.name, time.monotonic() - began)
        self._tell_done(self.kept[level.name].result, time.monotonic() - began)

    def _keep(self, result: LevelResult, requests: Requests) -> None:
        self.kept[result.level.name] = Kept(result, requests)
        self._folder.save_level(self._hash, result, requests)

    def _tell_done(self, result: LevelResult, elapsed_s: float, before: str = "") -> None:
        shown = row(result)
        if not result.valid:
            self._tell("warning", f"{title(result.level)} is INVALID: {shown['why']}")
        data = {"row": shown, "elapsed_s": round(elapsed_s, 1), "left_s": _whole(self._outlook.left_s())}
        self._tell("step-done", before + _line(shown), step=result.level.name, **data)

    def _progress(self, level: Level, phase: str, began: float) -> Callable[[Ticks], None]:
        told_s = [-PROGRESS_S]
        total = planned(level, self._loaded.load) if phase != "warm-up" else None

        def progress(ticks: Ticks) -> None:
            if ticks.elapsed_s - told_s[0] < PROGRESS_S:
                return
            told_s[0] = ticks.elapsed_s
            elapsed_s = time.monotonic() - began
            self._tell(
                "progress",
                step=level.name,
                phase=phase,
                done=ticks.done,
                total=total,
                in_flight=ticks.in_flight,
                tok_s=round(ticks.events / ticks.elapsed_s, 1) if ticks.elapsed_s else 0,
                elapsed_s=round(elapsed_s, 1),
                left_s=_whole(self._outlook.left_s(elapsed_s)),
            )

        return progress


def _refuse_silent(driven: Driven, url: str) -> None:
    """Raise UnreachableError where an answer was waited for in vain: each further one would take as long."""
    for received in driven.received:
        if received.end in ("timeout", "stall"):
            raise UnreachableError(
                "the first request was not answered whole",
                at=url,
                found=received.detail,
                hint="read the server's log: does it generate, and end its answers?",
            )


def _of_cold(cold: Cold) -> str:
    if cold.failure:
        return f"the first request failed: {cold.failure}"
    why = f" ({cold.why})" if cold.why else ""
    text = f"first request: {cold.ttft_s:.2f} s to its first token, {cold.e2e_s:.2f} s in all{why}"
    return f"{text}; it is in no mean, and whether the server was warm already cannot be known"


def _words(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _line(shown: Mapping[str, str | float | None]) -> str:
    figures = {"aggregate": "tok/s", "user": "tok/s per request", "ttft_mean": "s TTFT"}
    known = [f"{shown[name]:.4g} {unit}" for name, unit in figures.items() if shown.get(name) is not None]
    return ", ".join([*known, f"{shown['ok']} ok, {shown['failed']} failed"])


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds)
