"""How fast decoding could be if a step cost nothing but reading memory: docs/roofline.md. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.model.bench import Limit

if TYPE_CHECKING:
    from orchestrator.model.bench import Level, Shape

BANDWIDTH_GB_S = 273.0  # NVIDIA's figure for the GB10's LPDDR5X: the peak, not what a kernel reaches
ALL_REDUCE_S = 25e-6  # assumed for a small one between two nodes over RoCE; two in every layer


@dataclass(frozen=True)
class _Step:
    """One engine step: *sequences* requests advance, each with *drafts* tokens to be verified."""

    shape: Shape
    sequences: int
    drafts: float
    context_tokens: float

    @property
    def positions(self) -> float:
        return self.sequences * (1 + self.drafts)

    def bytes_with(self, experts: float) -> float:
        """Bytes that all nodes read together, where *experts* different ones are touched in each layer."""
        return self._always + experts * _expert(self.shape) * self.shape.expert_bytes

    def experts_of(self, step_bytes: float) -> float:
        """The other way round: how many different experts fit into so many bytes."""
        return (step_bytes - self._always) / (_expert(self.shape) * self.shape.expert_bytes)

    @property
    def _always(self) -> float:
        """The dense weights, and the KV cache once per sequence: its drafts are verified together."""
        dense = self.shape.active - self.shape.experts_per_token * _expert(self.shape)
        return (
            dense * self.shape.dense_bytes + self.sequences * self.context_tokens * self.shape.kv_bytes_token
        )


def _expert(shape: Shape) -> float:
    """Parameters of the experts with one index, over all layers."""
    return (
        (shape.parameters - shape.active) / (shape.experts - shape.experts_per_token) if shape.experts else 0
    )


def unique_experts(shape: Shape, positions: float) -> float:
    """Different experts per layer that *positions* tokens touch, if each picked its own independently."""
    share = shape.experts_per_token / shape.experts
    return shape.experts * float(1 - (1 - share) ** positions)


def limit(  # noqa: PLR0913  # a model, a machine and a load have so many numbers
    shape: Shape,
    level: Level,
    *,
    bandwidth_gb_s: float = BANDWIDTH_GB_S,
    nodes: int = 1,
    aggregate_tok_s: float | None = None,
    decode_tok_s: float | None = None,
    context_tokens: float = 0,
    acceptance_length: float = 1,
    drafts: float = 0,
) -> Limit | None:
    """
    Hold a level against the memory model; None in an open loop, whose steps have no one size.

    *nodes* read at the same time (tensor parallel). *decode_tok_s* is that of one request. *context_tokens* is the
    mean length of a sequence while it decodes. With speculation a step verifies *drafts* tokens of every sequence
    and yields *acceptance_length*. An efficiency above 1 is no mistake: requests then share experts.
    """
    if level.rate is not None:
        return None
    step = _Step(shape, level.concurrency, drafts, context_tokens)
    expected = unique_experts(shape, step.positions) if shape.experts else 0.0
    tokens, bytes_s = level.concurrency * acceptance_length, nodes * bandwidth_gb_s * 1e9
    step_s = step.bytes_with(expected) / bytes_s
    all_reduce_s = 2 * shape.layers * ALL_REDUCE_S if nodes > 1 else 0
    model = tokens / step_s
    decode = None if decode_tok_s is None else level.concurrency * decode_tok_s
    reached = max(aggregate_tok_s or 0, decode or 0)
    above = shape.experts and reached > model
    return Limit(
        bytes_per_step=step.bytes_with(expected),
        unique_experts=expected if shape.experts else None,
        model_tok_s=model,
        with_all_reduce_tok_s=tokens / (step_s + all_reduce_s),
        hard_tok_s=tokens * bytes_s / step.bytes_with(shape.experts_per_token),
        efficiency=None if aggregate_tok_s is None else aggregate_tok_s / model,
        decode_efficiency=None if decode is None else decode / model,
        implied_experts=step.experts_of(tokens / reached * bytes_s) if above else None,
    )
