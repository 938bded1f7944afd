"""`bench`: what is before the sweep and after it."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orchestrator import __version__
from orchestrator.bench.baseline import refuse
from orchestrator.bench.roofline import limit
from orchestrator.bench.shape import known_shape, shape_from_config
from orchestrator.bench.verdict import compare, undecided
from orchestrator.bench.words import diagnose
from orchestrator.client.abilities import look
from orchestrator.client.api import Api
from orchestrator.errors import Exit, InterruptedRunError, SparkDeployError, UsageError
from orchestrator.load.baseline import shipped_baselines, shipped_shapes
from orchestrator.model.bench import Result, Target
from orchestrator.remote.forward import allow_files
from orchestrator.run.identity import added_ms
from orchestrator.run.loaded import LoadedServer
from orchestrator.run.results import config_hash
from orchestrator.run.sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.bench.baseline import Baseline
    from orchestrator.client.abilities import Capabilities
    from orchestrator.model.bench import Cold, Deployment, Level, LevelResult, Limit, Load, Shape, Verdict
    from orchestrator.run.place import Place
    from orchestrator.run.results import Folder
    from orchestrator.run.sweep import Told

OTHER_FILES = 40  # the journal, the answers of /metrics, connections to the nodes

_CODES = {
    "pass": Exit.DONE,
    "regression": Exit.REGRESSION,
    "inconclusive": Exit.INCONCLUSIVE,
    "invalid": Exit.INVALID,
}


@dataclass(frozen=True)
class Asked:
    """What the operator wants. *model* "": the only one that is served."""

    load: Load
    levels: tuple[Level, ...]
    model: str = ""
    baseline: Baseline | None = None
    fail_on: tuple[str, ...] = ()
    bandwidth_gb_s: float = 273
    resume: bool = False


@dataclass(frozen=True)
class Call:
    """The run's id, the words it was called with, who listens, where its result goes, and where others lie."""

    id: str
    command: tuple[str, ...]
    tell: Told
    folder: Folder
    earlier: Iterable[Folder] = ()  # looked at with Asked.resume


def bench(place: Place, asked: Asked, call: Call) -> Result:
    """
    Measure *place*, and leave the result and its reports in the folder of *call*.

    Raises:
        UsageError: the server or the baseline does not fit what is asked; nothing was generated yet.
        UnreachableError: the server does not answer, or died; whole levels are kept.
        InterruptedRunError: Ctrl-C; whole levels are kept.
    """
    _allow_sockets(asked.levels)
    known = look(Api(place.server), asked.model, asked.load)
    work = _Bench(place, asked, call, known)
    try:
        work.measure()
        return work.write(work.result(finished=True))
    except KeyboardInterrupt:
        error = InterruptedRunError("interrupted: what was under way is lost")
        work.keep_what_is_there(error)
        raise error from None
    except SparkDeployError as error:
        work.keep_what_is_there(error)
        raise


def _allow_sockets(levels: Iterable[Level]) -> None:
    """
    Allow as many as are needed: many shells start us with 256 or 1024 files at most.

    Raises:
        UsageError: the system does not let us have them.
    """
    wanted = max(level.concurrency for level in levels) + OTHER_FILES
    if (allowed := allow_files(wanted)) < wanted:
        raise UsageError(
            f"{wanted - OTHER_FILES} requests at once need as many open sockets",
            found=f"{allowed} open files are allowed (ulimit -n)",
            wanted=f"{wanted}, those of the command itself counted",
            hint=f"ulimit -Hn {wanted}, or lower --levels",
        )


def exit_code(result: Result) -> Exit:
    """Without a verdict the sweep is as good as its levels are valid."""
    without = "pass" if result.valid else "invalid"
    return _CODES[result.verdict.status if result.verdict else without]


class _Bench:
    """One bench: what is known before the sweep, and what the sweep has brought so far."""

    def __init__(self, place: Place, asked: Asked, call: Call, known: Capabilities) -> None:
        """Raises UsageError: the baseline, or what lies in the folder, is of something else."""
        self._place, self._asked, self._call = place, asked, call
        self._started = time.time()
        self._deployment = place.identify(known)
        if asked.baseline:
            refuse(asked.baseline, self._deployment, asked.load, asked.levels, asked.fail_on)
        call.folder.refuse_another(asked.load, self._deployment, place.server.url, resume=asked.resume)
        self._shape = _shape(place, self._deployment)
        self._target = Target(place.server.url, place.through)
        self._cold: Cold | None = None
        self._loaded = LoadedServer(place.server, known, asked.load, call.id, place.through, place.telemetry)
        hashed = config_hash(asked.load, self._deployment, place.server.url)
        self._sweep = Sweep(self._loaded, call.tell, call.folder, hashed, self._with_limit)

    def measure(self) -> None:
        """Raises UnreachableError, or UsageError: the server does not generate."""
        self._measure_the_way()
        self._cold = self._sweep.first_request(self._place.log)
        self._foresee(self._cold)
        earlier = tuple(self._call.earlier) if self._asked.resume else ()
        for level in self._asked.levels:
            if not self._sweep.take_over(level, earlier):
                self._sweep.measure(level)
        while names := self._undecided():
            for name in names:
                self._sweep.once_more(name)

    def result(self, *, finished: bool) -> Result:
        asked, known = self._asked, self._loaded.known
        levels = self._levels()
        result = Result(
            self._call.id,
            self._started,
            __version__,
            self._call.command,
            self._target,
            self._deployment,
            replace(asked.load, endpoint=known.endpoint),  # it may have had to be the other one
            levels,
            self._cold,
            known.fallbacks,
            self._shape,
            asked.bandwidth_gb_s,
            verdict=self._verdict(levels),
            finished=finished,
        )
        context = [baseline for baseline in shipped_baselines() if baseline.context]
        return replace(result, words=diagnose(result, context, asked.baseline))

    def write(self, result: Result) -> Result:
        requests = {name: kept.requests for name, kept in self._sweep.kept.items()}
        self._call.folder.write(result, requests)
        return result

    def keep_what_is_there(self, error: SparkDeployError) -> None:
        """Write the whole levels, and say in *error* where they are."""
        if self._sweep.kept:
            self.write(self.result(finished=False))
            error.hint = (
                f"whole levels are in {self._call.folder.path}: the same command with --resume goes on"
            )

    def _measure_the_way(self) -> None:
        """Tell where the requests go, how far that is, and what SSH adds."""
        place = self._place
        rtt_ms = self._loaded.api.rtt_ms()
        added = added_ms(rtt_ms, place.rtt_there_ms) if place.through else None
        self._target = replace(self._target, rtt_ms=rtt_ms, added_ms=added)
        away = "" if rtt_ms is None else f", {rtt_ms:.1f} ms away"
        adding = "" if added is None else f", which adds {added:.1f} ms"
        by = f", through {place.through}'s SSH connection{adding}" if place.through else ""
        self._call.tell("note", f"{self._deployment.model} at {place.server.url}{away}{by}")

    def _foresee(self, cold: Cold) -> None:
        asked = self._asked
        if asked.baseline and asked.baseline.metric != "wall":
            text = f"the figures of {asked.baseline.name} are shown, not judged: the verdict will be inconclusive"
            self._call.tell("note", text)
        self._sweep.foresee(asked.levels, cold, asked.baseline)

    def _levels(self) -> tuple[LevelResult, ...]:
        kept = self._sweep.kept
        return tuple(kept[level.name].result for level in self._asked.levels if level.name in kept)

    def _verdict(self, levels: tuple[LevelResult, ...]) -> Verdict | None:
        asked = self._asked
        if asked.baseline is None:
            return None
        return compare(levels, asked.baseline, fail_on=asked.fail_on, deployment=self._deployment)

    def _undecided(self) -> tuple[str, ...]:
        levels = self._levels()
        verdict = self._verdict(levels)
        return undecided(verdict, levels) if verdict else ()

    def _with_limit(self, result: LevelResult) -> LevelResult:
        """Hold the level against the memory model, where the model's shape is known."""
        if self._shape is None:
            return result
        return replace(result, limit=_limit(result, self._shape, self._asked, self._deployment))


def _shape(place: Place, deployment: Deployment) -> Shape | None:
    name = deployment.root or deployment.model
    return shape_from_config(place.config, place.weight_bytes, name) or known_shape(name, shipped_shapes())


def _limit(result: LevelResult, shape: Shape, asked: Asked, deployment: Deployment) -> Limit | None:
    """What memory bandwidth allows at this level; speculation as the server's counters have it."""
    mean = {name: estimate.mean for name, estimate in result.summary.items()}
    server = next((repeat.server for repeat in result.repeats if repeat.server), None)
    accepted = server.acceptance_length if server else None
    drafts = (server.draft_tokens or 0) / server.drafts if server and server.drafts else 0
    return limit(
        shape,
        result.level,
        bandwidth_gb_s=asked.bandwidth_gb_s,
        nodes=deployment.tensor_parallel or max(len(deployment.nodes), 1),
        aggregate_tok_s=mean.get("steady_tok_s", mean.get("aggregate_tok_s")),
        decode_tok_s=mean.get("decode_tok_s"),
        context_tokens=asked.load.prompt_tokens + asked.load.output_tokens / 2,
        acceptance_length=accepted or 1,
        drafts=drafts,
    )
