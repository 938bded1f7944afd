"""Statistics of many values, and of a few repeats. Pure; no numpy, for two quantiles."""

from __future__ import annotations

import math
import operator
from bisect import bisect_right
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING

from orchestrator.model.bench import Estimate, Spread

if TYPE_CHECKING:
    from collections.abc import Sequence

NEEDED = {50: 2, 90: 10, 95: 20, 99: 100}  # values behind a percentile p: 1 / (1 - p)


@dataclass(frozen=True)
class Weighted:
    """Values in order; *ends*: what all up to this one weigh together."""

    values: Sequence[float]
    ends: Sequence[int]

    @property
    def total(self) -> int:
        return self.ends[-1] if self.ends else 0

    def until(self, value: float) -> int:
        """What all values up to *value*, and itself, weigh together."""
        count = bisect_right(self.values, value)
        return self.ends[count - 1] if count else 0

    def percentile(self, percent: int) -> float | None:
        """Linear between the two nearest values, as numpy's default, each repeated as often as it counts."""
        if self.total < NEEDED[percent]:
            return None
        place = (self.total - 1) * percent / 100
        low = math.floor(place)
        below, above = (self.values[bisect_right(self.ends, k)] for k in (low, min(low + 1, self.total - 1)))
        return below + (above - below) * (place - low)


def weighted(values: Sequence[float], weights: Sequence[int] | None = None) -> Weighted:
    """Weight k says how often value k counts (each once, without weights): 3 tokens at one time are 3 values."""
    if weights is None or max(weights, default=1) == 1:
        return Weighted(sorted(values), range(1, len(values) + 1))
    order = sorted(range(len(values)), key=values.__getitem__)
    return Weighted([values[k] for k in order], list(accumulate(weights[k] for k in order)))


def spread(values: Sequence[float], weights: Sequence[int] | None = None) -> Spread:
    """Weights count as in `weighted`."""
    ordered = weighted(values, weights)
    n = ordered.total
    if not n:
        return Spread()
    counts = weights or [1] * n
    mean = math.fsum(map(operator.mul, values, counts)) / n
    squares = math.fsum((value - mean) ** 2 * count for value, count in zip(values, counts, strict=True))
    return Spread(
        n=n,
        mean=mean,
        sd=math.sqrt(squares / (n - 1)) if n > 1 else None,
        minimum=ordered.values[0],
        p50=ordered.percentile(50),
        p90=ordered.percentile(90),
        p95=ordered.percentile(95),
        p99=ordered.percentile(99),
        maximum=ordered.values[-1],
    )


def estimate(values: Sequence[float]) -> Estimate:
    """
    Give the mean of repeats with its 95 % interval: t sd / sqrt(n).

    Raises:
        ValueError: there is no value.
    """
    found = spread(values)
    if found.mean is None:
        raise ValueError("no repeat to take a mean of")
    if found.sd is None:
        return Estimate(1, found.mean)
    half = t_quantile(found.n - 1, 0.975) * found.sd / math.sqrt(found.n)
    return Estimate(found.n, found.mean, found.sd, half)


@cache
def t_quantile(df: float, one_sided: float = 0.95) -> float:
    """
    Student's t with *df* >= 1 degrees of freedom that *one_sided* of all values lie below; 0.5 to 0.975.

    With t = sqrt(df) tan(a), the density is K cos(a)^(df - 1): smooth and bounded, so that Simpson's rule and
    bisection are exact to 1e-6. At df = 1, where it is largest, t is 12.7.
    """
    low, high = 0.0, math.atan(13 / math.sqrt(df))
    for _ in range(50):
        middle = (low + high) / 2
        if 0.5 + _half_below(middle, df) < one_sided:
            low = middle
        else:
            high = middle
    return math.sqrt(df) * math.tan(high)


def _half_below(angle: float, df: float) -> float:
    """Give the probability between 0 and *angle*."""
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(math.pi)
    steps = 200
    weights = (1, *(4, 2) * (steps // 2 - 1), 4, 1)
    heights = (math.cos(angle * k / steps) ** (df - 1) for k in range(steps + 1))
    return scale * angle / steps / 3 * math.fsum(w * h for w, h in zip(weights, heights, strict=True))
