"""What a terminal shows of a result: what was measured, the table, what it means. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.ui.printable import folded, one_line
from orchestrator.ui.report.table import lines, number, rows, windows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.bench import LevelResult, Load, Result

WIDEST = 120  # a longer sentence is hard to read


def show_result(result: Result, folder: object, width: int = WIDEST) -> str:
    """Give the answer of a sweep. *width*: of the terminal."""
    found = rows(result)
    table = ["", *lines(found, width), ""] if found else []
    told = [*title(result), *table, *_told(result), f"results: {folder}"]
    fitting = min(width, WIDEST)
    return "\n".join(line if line in table else folded(one_line(line), fitting, "  ") for line in told)


def title(result: Result) -> Iterator[str]:
    """Say what was measured in one line, and what of it the server could not do."""
    d, load = result.deployment, result.load
    engine = " ".join(filter(None, (d.engine, d.engine_version)))
    tensor_parallel = f"TP={d.tensor_parallel}" if d.tensor_parallel else ""
    parts = (d.model, tensor_parallel, ",".join(d.nodes), engine, of_load(load), cold(result))
    yield "  ".join(filter(None, parts))
    yield from (f"note: {sentence}" for sentence in result.fallbacks)


def of_load(load: Load) -> str:
    repeats = f", {load.repeats} repeats" if load.repeats > 1 else ""
    chat = ", chat" if load.endpoint == "chat" else ""
    return f"in {load.prompt_tokens} out {load.output_tokens}{chat}{repeats}"


def cold(result: Result) -> str:
    first = result.cold
    if first is None:
        return ""
    if first.failure:
        return f"cold request: failed ({first.failure})"
    return f"cold request: TTFT {number(first.ttft_s)} s" + (f" ({first.why})" if first.why else "")


def complaints(level: LevelResult) -> tuple[str, ...]:
    """Give a sentence per gate that a repeat of *level* did not pass; what only warns comes last."""
    found: dict[tuple[bool, str], list[str]] = {}
    for gate in (gate for repeat in level.repeats for gate in repeat.gates if not gate.ok):
        found.setdefault((gate.warns, gate.name), []).append(gate.text)
    return tuple(
        f"{'warning' if warns else 'INVALID'}: {texts[0]}{_often(len(texts), len(level.repeats))}"
        for (warns, _), texts in sorted(found.items(), key=lambda item: item[0][0])
    )


def told_gates(result: Result) -> tuple[tuple[str, str], ...]:
    """Give (levels, sentence) of what makes levels INVALID, or is worth a warning; each sentence once."""
    found: dict[str, list[str]] = {}
    for level in result.levels:
        for text in complaints(level):
            found.setdefault(text, []).append(level.level.name)
    return tuple((", ".join(names), text) for text, names in found.items())


def answer(result: Result) -> str:
    """Say in a sentence how fast the lowest and the highest valid level are; "" without one of --levels."""
    both = zip(result.levels, rows(result), strict=True)
    found = [row for level, row in both if row["status"] == "ok" and level.level.rate is None]
    if not found or None in (found[0]["user"], found[0]["ttft_mean"]):
        return ""
    low, top = found[0], found[-1]
    first, rate = number(low["ttft_mean"]), number(low["user"])
    alone = "One request alone" if low["level"] == "1" else f"Each of {low['level']} requests at once"
    told = f"{alone} waits {first} s for its first token, then gets {rate} tok/s"
    if top is not low:
        told += f"; {top['level']} at once get {number(top['aggregate'])} tok/s together"
    unjudged = "" if result.verdict else " To know whether that is good, give a baseline (docs/bench.md)."
    return f"{told}.{unjudged}"


def _often(times: int, repeats: int) -> str:
    return f" (in {times} of {repeats} repeats)" if times < repeats else ""


def _told(result: Result) -> Iterator[str]:
    if not result.finished:
        yield "This sweep was interrupted: the levels above are whole, others are missing."
    if found := answer(result):
        yield found
    if found := windows(rows(result)):
        yield found
    yield from (f"C = {levels}  {text}" for levels, text in told_gates(result))
    yield from (
        f"failed at C = {level.level.name}: {text}" for level in result.levels for text in _failures(level)
    )
    if result.verdict:
        yield f"verdict: {verdict(result)}"
    if result.words:
        yield " ".join(result.words)


def verdict(result: Result) -> str:
    found = result.verdict
    return f"{found.status} (against {found.baseline}). {found.text}".strip() if found else ""


def _failures(level: LevelResult) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for repeat in level.repeats for text in repeat.failure_details))
