"""A baseline: what a sweep is held against, and what may not be held against what. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from orchestrator.bench.shape import last_name
from orchestrator.bench.summary import figures
from orchestrator.errors import UsageError, one_or_many
from orchestrator.model.bench import DEFINITIONS, Deployment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from orchestrator.model.bench import Level, Load, Result

Metric = Literal["wall", "decode", "unstated"]


@dataclass(frozen=True)
class Baseline:
    """
    Figures by level and by name in SUMMED: one published number, or one per repeat of an earlier run.

    *metric* says what its throughput is: tokens over wall time, as ours, or another thing, which is shown and not
    judged. None and "" mean that nobody said. *context*: other hardware or another model, for the words alone.
    """

    name: str
    model: str
    rows: Mapping[str, Mapping[str, tuple[float, ...]]]
    quant: str = ""
    engine: str = ""
    nodes: int | None = None
    tensor_parallel: int | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    metric: Metric = "wall"
    speculative: str = ""
    source: str = ""
    caveat: str = ""
    cold_ttft_s: float | None = None
    definitions: int | None = None  # None: published, not a result of ours
    context: bool = False
    endpoint: str = ""
    deployment: Deployment | None = None  # of an earlier run


def from_result(result: Result, name: str = "") -> Baseline:
    """
    Give an earlier run as the baseline; its invalid levels are none.

    Raises:
        UsageError: no level of it is valid.
    """
    deployment, load, name = result.deployment, result.load, name or result.run_id
    rows = {level.level.name: figures(level.repeats) for level in result.levels if level.valid}
    if not rows:
        raise UsageError(f"{name} cannot be a baseline: none of its levels is valid", wanted="a valid result")
    return Baseline(
        name=name,
        model=deployment.root or deployment.model,
        rows=rows,
        quant=deployment.quant,
        engine=f"{deployment.engine} {deployment.engine_version}".strip(),
        nodes=len(deployment.nodes) or None,
        tensor_parallel=deployment.tensor_parallel,
        prompt_tokens=load.prompt_tokens,
        output_tokens=load.output_tokens,
        source=f"run {result.run_id}",
        cold_ttft_s=result.cold.ttft_s if result.cold else None,
        definitions=result.definitions,
        endpoint=load.endpoint,
        deployment=deployment,
    )


def refuse(
    baseline: Baseline,
    deployment: Deployment,
    load: Load,
    levels: Sequence[Level] = (),
    fail_on: Sequence[str] = (),
) -> None:
    """
    Raises:
        UsageError, ManyError: *baseline* is of another model, quantisation, load or definition of the figures, is
            there for context alone, or has none of *levels* or of the figures in *fail_on*.
    """
    unlike = (*_unlike(baseline, deployment, load), *_lacking(baseline, levels, fail_on))
    problems = [
        UsageError(f"{baseline.name} is no baseline for this: {what}", found=found, wanted=wanted, hint=hint)
        for what, found, wanted, hint in unlike
    ]
    if problems:
        raise one_or_many(problems)


_Unlike = tuple[str, str, str, str | None]


def _lacking(baseline: Baseline, levels: Sequence[Level], fail_on: Sequence[str]) -> Iterator[_Unlike]:
    if levels and not any(level.name in baseline.rows for level in levels):
        here = ", ".join(level.name for level in levels)
        yield "it has none of the levels", here, ", ".join(baseline.rows), None
    known = dict.fromkeys(figure for row in baseline.rows.values() for figure in row)
    if fail_on and not any(figure in known for figure in fail_on):
        yield "it has none of the figures", f"--fail-on {','.join(fail_on)}", ", ".join(known), None


def _unlike(baseline: Baseline, deployment: Deployment, load: Load) -> Iterator[_Unlike]:
    """Each with what is found here, and what the baseline has."""
    if baseline.context:
        yield "it is there for context alone", baseline.caveat, "the same model on the same machines", None
        return
    if not _same_model(baseline, deployment):
        hint = "--baseline ID judges by an earlier run of any model: `spark-deploy bench history` lists them"
        yield "another model", deployment.root or deployment.model, baseline.model, hint
    if _differ(_quant(deployment.quant), _quant(baseline.quant)):
        yield "another quantisation", deployment.quant, baseline.quant, None
    if _differ(load.endpoint, baseline.endpoint):
        yield "another endpoint", load.endpoint, baseline.endpoint, None
    for what, option, asked, there in (
        ("prompts", "--input-tokens", load.prompt_tokens, baseline.prompt_tokens),
        ("answers", "--output-tokens", load.output_tokens, baseline.output_tokens),
    ):
        if _differ(asked, there):
            yield f"other {what}", f"{asked} tokens", f"{there} tokens", f"{option} {there}"
    if _differ(DEFINITIONS, baseline.definitions):
        hint = "measure it anew with this version"
        yield "its figures are defined otherwise", str(DEFINITIONS), str(baseline.definitions), hint


def _differ(here: object, there: object) -> bool:
    """Whether both are known and not the same."""
    return bool(here) and bool(there) and here != there


def _quant(text: str) -> str:
    return {"bf16": "bfloat16", "fp16": "float16"}.get(text.lower(), text.lower())


def _same_model(baseline: Baseline, deployment: Deployment) -> bool:
    """By what is behind the served name where both runs know it: two models may be served as `default`."""
    known = deployment.root if baseline.deployment and baseline.deployment.root else ""
    names = (known,) if known else (deployment.root, deployment.model)
    return last_name(baseline.model) in map(last_name, names)


def differences(baseline: Baseline, deployment: Deployment) -> tuple[str, ...]:
    """
    Say what else is not the same: what one may want to compare, and should know of.

    An earlier run is compared field by field; a published row is told as it was published.
    """
    if baseline.deployment is None:
        return tuple(_published(baseline, deployment))
    before = baseline.deployment
    changed = [
        f"{name} {_known(there)} -> {_known(here)}"
        for name, there, here in (
            ("image", before.image or before.image_id, deployment.image or deployment.image_id),
            ("engine", before.engine_version, deployment.engine_version),
            ("nodes", " ".join(before.nodes), " ".join(deployment.nodes)),
            ("tensor parallel", before.tensor_parallel, deployment.tensor_parallel),
            ("transport", before.transport, deployment.transport),
        )
        if there != here
    ]
    return (*changed, *_arguments(before.args, deployment.args))


def _known(value: object) -> str:
    return str(value) if value else "unknown"


def _arguments(before: Sequence[str], now: Sequence[str]) -> Iterator[str]:
    gone, new = ([word for word in one if word not in other] for one, other in ((before, now), (now, before)))
    if gone:
        yield f"without {' '.join(gone)}"
    if new:
        yield f"with {' '.join(new)}"


def _published(baseline: Baseline, deployment: Deployment) -> Iterator[str]:
    yield f"it ran on {baseline.engine}" if baseline.engine else "its engine is not known"
    if _differ(deployment.tensor_parallel, baseline.tensor_parallel):
        yield f"tensor parallel {baseline.tensor_parallel} -> {deployment.tensor_parallel}"
    speculates = any("speculative" in word for word in deployment.args)
    if bool(baseline.speculative) != speculates:
        yield f"speculation {baseline.speculative or 'none'} -> {'some' if speculates else 'none'}"
    unsaid = [
        what
        for what, value in (
            ("quantisation", baseline.quant),
            ("prompt length", baseline.prompt_tokens),
            ("answer length", baseline.output_tokens),
        )
        if not value
    ]
    if unsaid:
        yield f"its {', '.join(unsaid)} {'is' if len(unsaid) == 1 else 'are'} not stated"
    if baseline.caveat:
        yield baseline.caveat
