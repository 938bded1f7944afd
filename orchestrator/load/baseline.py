"""Baselines and model shapes: the shipped ones by name, a file of the same shape, a result of an earlier run."""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from orchestrator import assets
from orchestrator.bench.baseline import Baseline, Metric, from_result
from orchestrator.errors import FileError, UsageError, one_or_many
from orchestrator.load.document import read_document
from orchestrator.load.find import SUFFIXES
from orchestrator.load.problems import in_file_order, nearest, validated
from orchestrator.load.wanted import refuse
from orchestrator.model.bench import SUMMED, Shape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from orchestrator.load.document import Document
    from orchestrator.model.bench import Result

DECODE_TOTAL = "decode_total_tok_s"
CELL_WANTED = "numbers above 0, one per level: 26, [25.9, 26.1] for repeats, or ~"

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Words = Annotated[str, Field(min_length=1)]


def _cells(value: Any) -> Any:
    """One tuple per level, empty where there is no figure."""
    if not isinstance(value, list):
        raise refuse(CELL_WANTED)
    rows = [cell if isinstance(cell, list) else [] if cell is None else [cell] for cell in value]
    for number in (number for row in rows for number in row):
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 < number < float("inf"):
            raise refuse(CELL_WANTED)
    return rows


Column = Annotated[Any, AfterValidator(_cells)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Curve(_Strict):
    """Columns are the names in SUMMED, and decode_total_tok_s."""

    name: Words
    model: Words
    quant: str = ""
    engine: str = ""
    nodes: Count | None = 2
    tensor_parallel: Count | None = 2
    prompt_tokens: Count | None = None
    output_tokens: Count | None = None
    metric: Metric = "wall"
    speculative: str = ""
    source: str = ""
    caveat: str = ""
    cold_ttft_s: Positive | None = None
    context: bool = False
    levels: Annotated[list[Count], Field(min_length=1)]
    aggregate_tok_s: Column = None
    steady_tok_s: Column = None
    decode_total_tok_s: Column = None
    decode_tok_s: Column = None
    user_tok_s: Column = None
    ttft_mean_s: Column = None
    ttft_p50_s: Column = None
    ttft_p99_s: Column = None
    tpot_mean_ms: Column = None
    itl_p50_ms: Column = None
    itl_p99_ms: Column = None
    e2e_mean_s: Column = None


class _Curves(_Strict):
    format: Literal["spark-deploy/baselines/v1"]
    baselines: Annotated[list[_Curve], Field(min_length=1)]


class _Model(_Strict):
    model: Words
    parameters: Positive  # 10^9
    active: Positive
    layers: Count
    hidden: Count | None = None
    experts: Count | None = None
    per_token: Count | None = None
    dense_bytes: Positive
    expert_bytes: Positive = 2
    kv_bytes_token: Positive | None = None
    basis: Words


class _Models(_Strict):
    format: Literal["spark-deploy/models/v1"]
    models: list[_Model]


def find_baseline(wanted: str, cwd: Path, result_of: Callable[[str], Result]) -> Baseline:
    """
    Give the shipped baseline of that name, the one in a YAML file, or an earlier result.

    *result_of* finds that by its file, its folder, or the id of its run.

    Raises:
        UsageError: there is no such baseline or run, or the result has no valid level.
        FileError, ManyError: the file is wrong.
    """
    shipped = {baseline.name: baseline for baseline in shipped_baselines()}
    if wanted in shipped:
        return shipped[wanted]
    if wanted.endswith(SUFFIXES):
        return _only_one(cwd / wanted)
    folder = os.path.isdir(cwd / wanted)  # noqa: PTH112  # is_dir() raises where a name is too long
    if "/" in wanted or wanted.endswith(".json") or folder:
        return from_result(result_of(str(cwd / wanted)), wanted)
    if wanted == "last" or wanted[:1].isdigit():
        return from_result(result_of(wanted))
    known = [name for name, baseline in shipped.items() if not baseline.context]
    near = nearest(wanted, known)
    raise UsageError(
        f"there is no baseline {wanted!r}",
        wanted=f"{', '.join(known)}; or a file, or an earlier run",
        hint=f"did you mean {near}?" if near else "`spark-deploy bench history` lists earlier runs",
    )


def _only_one(path: Path) -> Baseline:
    baselines = load_baselines(path)
    if len(baselines) > 1:
        names = ", ".join(baseline.name for baseline in baselines)
        raise FileError(f"{path} holds {len(baselines)} baselines", found=names, wanted="one in a file")
    return baselines[0]


@cache
def shipped_baselines() -> tuple[Baseline, ...]:
    return load_baselines(assets.shipped_inventories() / "bench" / "baselines.yaml")


@cache
def shipped_shapes() -> Mapping[str, Shape]:
    """By the model's name."""
    document = read_document(assets.shipped_inventories() / "bench" / "models.yaml", "list of models")
    return {model.model: _shape(model) for model in validated(_Models, document).models}


def load_baselines(path: Path) -> tuple[Baseline, ...]:
    """
    Raises:
        FileError, ManyError: with file and line.
    """
    document = read_document(path, "baseline")
    curves = validated(_Curves, document).baselines
    problems = [problem for index, curve in enumerate(curves) for problem in _misfits(document, index, curve)]
    if problems:
        raise one_or_many(in_file_order(problems))
    return tuple(map(_baseline, curves))


def _columns(curve: _Curve) -> dict[str, list[list[float]]]:
    found = {name: getattr(curve, name) for name in (*SUMMED, DECODE_TOTAL)}
    return {name: cells for name, cells in found.items() if cells is not None}


def _misfits(document: Document, index: int, curve: _Curve) -> Iterator[FileError]:
    """What single values do not show: columns of another length, or none at all."""
    columns, count = _columns(curve), len(curve.levels)
    if not columns:
        at = document.at(("baselines", index))
        yield FileError(f"{curve.name} has no figures", at=at, wanted=", ".join((*SUMMED, DECODE_TOTAL)))
    for name, cells in columns.items():
        if len(cells) != count:
            at = document.at(("baselines", index, name))
            yield FileError(f"{name} has {len(cells)} cells", at=at, wanted=f"{count}, one for each level")


def _baseline(curve: _Curve) -> Baseline:
    fields = {name for name in type(curve).model_fields if name in Baseline.__dataclass_fields__}
    return Baseline(rows=_rows(curve), **{name: getattr(curve, name) for name in fields})


def _rows(curve: _Curve) -> dict[str, dict[str, tuple[float, ...]]]:
    """A decode rate of all requests together is C times that of one, where the source does not give both."""
    columns = _columns(curve)
    totals = columns.pop(DECODE_TOTAL, None)
    if totals:
        shared = [[total / level for total in cell] for level, cell in zip(curve.levels, totals, strict=True)]
        columns = {"decode_tok_s": shared, **columns}
    return {
        str(level): {name: tuple(cells[place]) for name, cells in columns.items() if cells[place]}
        for place, level in enumerate(curve.levels)
    }


def _shape(model: _Model) -> Shape:
    return Shape(
        name=model.model,
        parameters=model.parameters * 1e9,
        active=model.active * 1e9,
        layers=model.layers,
        experts=model.experts or 0,
        experts_per_token=model.per_token or 0,
        dense_bytes=model.dense_bytes,
        expert_bytes=model.expert_bytes,
        kv_bytes_token=model.kv_bytes_token or 0,
        hidden=model.hidden or 0,
        source=f"the list of models: {model.basis}",
    )
