"""result.csv: one row per level and repeat, every figure that is one number. Pure."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.model.bench import NodeLoad
from orchestrator.ui.printable import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.bench import LevelResult, Repeat, Result

    Cell = str | float | None


def show_csv(result: Result) -> str:
    """Columns are those of all rows: a node, or a server's counters, may be missing in some."""
    rows = [
        {"run_id": result.run_id, "model": result.deployment.model, **_row(level, number, repeat)}
        for level in result.levels
        for number, repeat in enumerate(level.repeats, 1)
    ]
    file = io.StringIO(newline="")
    writer = csv.DictWriter(
        file, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n"
    )
    writer.writeheader()
    writer.writerows({name: _text(cell) for name, cell in row.items()} for row in rows)
    return file.getvalue()


def _row(level: LevelResult, number: int, repeat: Repeat) -> dict[str, Cell]:
    bad = "; ".join(gate.text for gate in repeat.gates if not gate.ok and not gate.warns)
    about: dict[str, Cell] = {
        "level": level.level.name,
        "repeat": number,
        "valid": int(repeat.valid),
        "invalid_because": bad,
    }
    return {**about, **dict(_flat("", repeat))}


def _flat(prefix: str, value: Any) -> Iterator[tuple[str, Cell]]:
    """`ttft_s_p50`, `failures_short`, `client_cpu_s`, `spark-a_gpu_power_w_mean`; lists have no place in a table."""
    if is_dataclass(value):
        for field in fields(value):
            if field.name != "window_s":
                yield from _flat(f"{prefix}_{field.name}".strip("_"), getattr(value, field.name))
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _flat(f"{prefix}_{name}", inner)
    elif isinstance(value, tuple):
        for item in value:
            if isinstance(item, NodeLoad):
                yield from _flat(item.node, item)
    else:
        yield prefix, value


def _text(cell: Cell) -> Cell:
    """A spreadsheet takes what begins with one of these for a formula, and some of the text is a server's."""
    if not isinstance(cell, str):
        return round(cell, 6) if isinstance(cell, float) else cell
    text = one_line(cell)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
