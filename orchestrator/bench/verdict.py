"""Is it slower than the baseline? Non-inferiority with a floor, and more repeats where that cannot be said. Pure."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Literal, NamedTuple

from orchestrator.bench.baseline import differences
from orchestrator.bench.estimate import t_quantile
from orchestrator.bench.summary import figures
from orchestrator.model.bench import MetricVerdict, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from orchestrator.bench.baseline import Baseline
    from orchestrator.model.bench import Deployment, LevelResult

MAX_REPEATS = 8
PUBLISHED_FLOOR = 0.15  # of a single number whose own noise nobody knows
SD_MINIMUM = 0.005  # three repeats may agree by chance: nothing here repeats better than to 0.5 %
# A change for the worse that is smaller than this is none. A throughput repeats to 1 to 2 %, a mean TTFT to twice
# that, and a p99 of some dozens of requests is one or two of them.
FLOORS: Mapping[str, float] = {
    "aggregate_tok_s": 0.05,
    "steady_tok_s": 0.05,
    "decode_tok_s": 0.05,
    "user_tok_s": 0.05,
    "ttft_mean_s": 0.10,
    "ttft_p50_s": 0.10,
    "ttft_p99_s": 0.20,
    "tpot_mean_ms": 0.05,
    "itl_p50_ms": 0.05,
    "itl_p99_ms": 0.20,
    "e2e_mean_s": 0.05,
}
# The decode rate stands for TPOT, which is its inverse; a figure more is a false alarm more.
JUDGED = ("aggregate_tok_s", "decode_tok_s", "ttft_mean_s", "ttft_p99_s", "itl_p99_ms")


class Decision(NamedTuple):
    """*change* and its one-sided 95 % bounds are fractions, negative is worse; no bounds: no noise is known yet."""

    status: Literal["pass", "fail", "inconclusive"]
    change: float
    low: float | None = None
    high: float | None = None


def decide(
    new: Sequence[float], old: Sequence[float], *, floor: float, higher_is_better: bool = True
) -> Decision:
    """
    Fail where the change is beyond the floor and is not noise; pass where it is surely within the floor.

    Works on logarithms: d = ln(new / old), with the pooled SD of both and Student's t.
    """
    sign = 1 if higher_is_better else -1
    change = sign * (_log_mean(new) - _log_mean(old))
    freedom = len(new) + len(old) - 2
    if freedom < 1:
        return Decision("inconclusive", math.expm1(change))
    sd = max(math.sqrt((_squares(new) + _squares(old)) / freedom), SD_MINIMUM)
    half = t_quantile(freedom, 0.95) * sd * math.sqrt(1 / len(new) + 1 / len(old))
    low, high = change - half, change + half
    status: Literal["pass", "fail", "inconclusive"] = "inconclusive"
    if change < -floor and high < 0:
        status = "fail"
    elif low > -floor:
        status = "pass"
    return Decision(status, math.expm1(change), math.expm1(low), math.expm1(high))


def _log_mean(values: Sequence[float]) -> float:
    return statistics.fmean(map(math.log, values))


def _squares(values: Sequence[float]) -> float:
    mean = _log_mean(values)
    return math.fsum((math.log(value) - mean) ** 2 for value in values)


def compare(
    levels: Sequence[LevelResult],
    baseline: Baseline,
    *,
    fail_on: Sequence[str] = (),
    deployment: Deployment | None = None,
) -> Verdict:
    """
    Judge what both have of *fail_on* (default: JUDGED); the others of JUDGED, and what was published, are shown.

    With *deployment* the text says what else differs.
    """
    judged = tuple(fail_on) or JUDGED
    metrics = tuple(verdict for level in levels for verdict in _level(level, baseline, judged))
    status = _status(levels, metrics)
    return Verdict(
        status, baseline.name, metrics, " ".join(_text(status, levels, baseline, metrics, deployment))
    )


def _level(level: LevelResult, baseline: Baseline, judged: Sequence[str]) -> Iterator[MetricVerdict]:
    new, old = figures(level.repeats), baseline.rows.get(level.level.name, {})
    published = old if baseline.definitions is None else ()
    for metric in dict.fromkeys((*judged, *JUDGED, *published)):
        if metric in new and metric in old and min(*new[metric], *old[metric]) > 0:
            yield _metric(level.level.name, metric, new[metric], baseline, shown=metric not in judged)


def _metric(
    level: str, metric: str, new: Sequence[float], baseline: Baseline, *, shown: bool
) -> MetricVerdict:
    old = baseline.rows[level][metric]
    single = len(old) == 1 and baseline.definitions is None
    floor = PUBLISHED_FLOOR if single else FLOORS[metric]
    decision = decide(new, old, floor=floor, higher_is_better=metric.endswith("_tok_s"))
    shown = shown or baseline.metric != "wall" or (single and metric.startswith("ttft"))
    return MetricVerdict(
        level=level,
        metric=metric,
        status="shown" if shown else decision.status,
        new=statistics.fmean(new),
        baseline=statistics.fmean(old),
        change=decision.change,
        low=decision.low,
        high=decision.high,
        floor=floor,
    )


Status = Literal["pass", "regression", "inconclusive", "invalid"]


def _status(levels: Sequence[LevelResult], metrics: Sequence[MetricVerdict]) -> Status:
    """Where nothing could be judged, nothing has passed."""
    found = {metric.status for metric in metrics} - {"shown"}
    if not all(level.valid for level in levels):
        return "invalid"
    if "fail" in found:
        return "regression"
    return "inconclusive" if "inconclusive" in found or not found else "pass"


def undecided(verdict: Verdict, levels: Sequence[LevelResult] = ()) -> tuple[str, ...]:
    """Give the levels that one more repeat may decide; none once the verdict is known, or after 8 repeats."""
    if verdict.status != "inconclusive":
        return ()
    full = {level.level.name for level in levels if len(level.repeats) >= MAX_REPEATS}
    names = (metric.level for metric in verdict.metrics if metric.status == "inconclusive")
    return tuple(name for name in dict.fromkeys(names) if name not in full)


def _text(
    status: Status,
    levels: Sequence[LevelResult],
    baseline: Baseline,
    metrics: Sequence[MetricVerdict],
    deployment: Deployment | None,
) -> Iterator[str]:
    """One sentence per thing that a reader of the status should know."""
    yield _because(status, levels, baseline, metrics)
    missing = [level.level.name for level in levels if level.level.name not in baseline.rows]
    if missing:
        yield f"Not judged: {', '.join(missing)}, which {baseline.name} does not have."
    if baseline.metric != "wall":
        how = (
            "decode alone, without the wait for first tokens" if baseline.metric == "decode" else "not stated"
        )
        yield f"What its throughput counts is {how}: its figures are shown and not judged."
    if deployment and (others := differences(baseline, deployment)):
        yield f"Bear in mind: {'; '.join(others)}."


def _because(
    status: Status, levels: Sequence[LevelResult], baseline: Baseline, metrics: Sequence[MetricVerdict]
) -> str:
    judged = [metric for metric in metrics if metric.status != "shown"]
    if status == "invalid":
        bad = ", ".join(level.level.name for level in levels if not level.valid)
        return f"Not valid at {bad}: nothing follows from it."
    if status == "regression":
        worst = min((metric for metric in judged if metric.status == "fail"), key=lambda one: one.change)
        return f"Worse than {baseline.name}: {told(worst)}."
    if not judged:
        return f"Nothing could be judged by {baseline.name}."
    if status == "inconclusive":
        open_ones = ", ".join(
            f"{one.metric} at {one.level}" for one in judged if one.status == "inconclusive"
        )
        return f"Too noisy to say whether it is worse than {baseline.name}: {open_ones}."
    least = told(min(judged, key=lambda one: one.change))
    return (
        f"Not worse than {baseline.name} in any of {len(judged)} figures, the least good of which is {least}."
    )


def told(metric: MetricVerdict) -> str:
    """`aggregate_tok_s at 16: 132 for 144 (-8.3 %, floor 5 %)`."""
    return (
        f"{metric.metric} at {metric.level}: {metric.new:.4g} for {metric.baseline:.4g} "
        f"({100 * metric.change:+.1f} %, floor {100 * metric.floor:g} %)"
    )
