"""Results side by side, the first one as the measure. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.bench.baseline import differences, from_result, refuse
from orchestrator.bench.verdict import JUDGED
from orchestrator.errors import SparkDeployError, each

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator.model.bench import Result


@dataclass(frozen=True)
class Side:
    """One result. *unlike*: why its figures may not be held against the first one's; *differs*: what else does."""

    name: str
    run_id: str
    unlike: tuple[str, ...] = ()
    differs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Line:
    """One figure of one level in each result: its mean, and the change against the first as a fraction of that."""

    level: str
    figure: str
    values: tuple[float | None, ...]
    changes: tuple[float | None, ...]


@dataclass(frozen=True)
class Comparison:
    sides: tuple[Side, ...]
    lines: tuple[Line, ...]

    @property
    def comparable(self) -> bool:
        return not any(side.unlike for side in self.sides)


def side_by_side(named: Sequence[tuple[str, Result]]) -> Comparison:
    """A level that is INVALID has no figures, and a result that is not comparable no changes."""
    (first_name, first), *others = named
    sides = (Side(first_name, first.run_id), *(_side(name, result, first) for name, result in others))
    return Comparison(sides, tuple(_lines([result for _, result in named], sides)))


def _side(name: str, result: Result, first: Result) -> Side:
    try:
        baseline = from_result(first)
        refuse(baseline, result.deployment, result.load)
    except SparkDeployError as error:
        return Side(name, result.run_id, tuple(_told(one) for one in each(error)))
    if result.definitions != first.definitions:
        return Side(name, result.run_id, ("its figures are defined otherwise",))
    return Side(name, result.run_id, (), differences(baseline, result.deployment))


def _told(error: SparkDeployError) -> str:
    what = error.message.rpartition(": ")[2]
    return f"{what} ({error.found}, not {error.wanted})" if error.found else what


def _lines(results: Sequence[Result], sides: Sequence[Side]) -> Iterator[Line]:
    names = dict.fromkeys(level.level.name for result in results for level in result.levels)
    for name in names:
        for figure in JUDGED:
            values = tuple(_value(result, name, figure) for result in results)
            if any(value is not None for value in values):
                pairs = zip(values, sides, strict=True)
                changes = tuple(None if side.unlike else _change(value, values[0]) for value, side in pairs)
                yield Line(name, figure, values, changes)


def _value(result: Result, level: str, figure: str) -> float | None:
    found = {one.level.name: one for one in result.levels if one.valid}
    return found[level].summary[figure].mean if level in found and figure in found[level].summary else None


def _change(new: float | None, old: float | None) -> float | None:
    return new / old - 1 if new is not None and old else None
