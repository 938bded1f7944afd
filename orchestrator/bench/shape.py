"""What the memory model needs of a model, from its config.json. Pure."""

from __future__ import annotations

import re
from collections import ChainMap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.model.bench import Shape

if TYPE_CHECKING:
    from collections.abc import Mapping

# Bytes per weight with its scales: 8 bits for 32 weights (mxfp4) or 16 (nvfp4), 16 bits for 128 (int4).
BYTES = {"fp8": 1.0, "int8": 1.0, "mxfp4": 0.53125, "nvfp4": 0.5625, "int4": 0.52, "": 2.0}
SIZE_TOLERANCE = (
    0.25  # of the checkpoint: vision towers and draft layers are not counted; a misread model is far off
)
NOT_READ = ("vision_config", "audio_config", "mtp_num_hidden_layers", "num_nextn_predict_layers")
# Architectures whose layers are not all of the kinds that are counted here.
NOT_COUNTED = ("hybrid_override_pattern", "mamba_num_heads", "interleave_moe_layer_step", "enable_moe_block")


def known_shape(name: str, shapes: Mapping[str, Shape]) -> Shape | None:
    """Give the shape of the model *name*: a Hub id, or a folder called like one."""
    return next((shape for model, shape in shapes.items() if last_name(model) == last_name(name)), None)


def last_name(name: str) -> str:
    """A Hub id, a folder of that name and a served name without the organisation are the same model."""
    return name.rstrip("/").rpartition("/")[2].lower()


def shape_from_config(config: Mapping[str, Any], total_bytes: int | None, name: str) -> Shape | None:
    """
    Give the shape by the keys of Hugging Face's common architectures; None where they do not tell.

    *total_bytes* of the checkpoint is the proof: None also where the count is not near it.
    """
    try:
        return _read(config, total_bytes, name)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None  # a config of another make


def _read(config: Mapping[str, Any], total_bytes: int | None, name: str) -> Shape | None:
    keys = ChainMap(config.get("text_config") or {}, dict(config))
    quant = _quant(keys)
    if quant not in BYTES or any(keys.get(key) for key in NOT_COUNTED):
        return None
    parts = _parts(keys)
    if parts.indices and not 0 < parts.per_token < parts.indices:
        return None  # it names the experts of a token by a key that is not known here
    factor = _factor(keys, parts.stored_bytes(quant, keys), total_bytes)
    return _shape(name, keys, parts, quant, factor) if factor else None


def _shape(name: str, keys: Mapping[str, Any], parts: _Parts, quant: str, factor: float) -> Shape:
    how = f"{quant or '16 bits'}, by config.json{'' if factor == 1 else ' and the size of the checkpoint'}"
    return Shape(
        name=name,
        parameters=parts.experts + parts.always + parts.lookup,
        active=parts.always + parts.experts * parts.per_token / max(parts.indices, 1),
        layers=keys["num_hidden_layers"],
        experts=parts.indices,
        experts_per_token=parts.per_token,
        dense_bytes=parts.always_bytes(quant, keys) / parts.always * factor,
        expert_bytes=BYTES[quant] * factor,
        kv_bytes_token=parts.kv_values * 2,
        hidden=keys["hidden_size"],
        source=f"{how}; a KV cache of 16 bits is assumed",
    )


def _factor(keys: Mapping[str, Any], stored: float, total_bytes: int | None) -> float | None:
    """What the counted bytes are corrected by; None: the count is wrong."""
    if not total_bytes:
        return 1
    factor = total_bytes / stored
    if abs(factor - 1) > SIZE_TOLERANCE:
        return None
    return 1 if any(keys.get(key) for key in NOT_READ) else factor


@dataclass(frozen=True)
class _Parts:
    """Parameters by how a step reads them, over all layers; norms and biases are left out."""

    experts: float  # all of them; a step reads some
    attention: float
    dense: float  # every other matrix that is quantised: MLPs, shared experts
    head: float  # lm_head and routers, which no quantisation touches
    lookup: float  # the input embedding, where it is a matrix of its own: a step reads a row
    indices: int
    per_token: int
    kv_values: float  # per token

    @property
    def always(self) -> float:
        return self.attention + self.dense + self.head

    def always_bytes(self, quant: str, keys: Mapping[str, Any]) -> float:
        attention = BYTES["" if _plain_attention(quant, keys) else quant]
        return self.attention * attention + self.dense * BYTES[quant] + self.head * BYTES[""]

    def stored_bytes(self, quant: str, keys: Mapping[str, Any]) -> float:
        all_bytes = self.always_bytes(quant, keys) + self.experts * BYTES[quant] + self.lookup * BYTES[""]
        return all_bytes * (2 if _dtype(keys) == "float32" and not quant else 1)  # the engine reads 16 bits


def _parts(keys: Mapping[str, Any]) -> _Parts:
    layers, hidden, vocabulary = keys["num_hidden_layers"], keys["hidden_size"], keys["vocab_size"]
    indices = _first(keys, "num_experts", "n_routed_experts", "num_local_experts")
    sparse = _sparse_layers(keys) if indices else 0
    inner = _first(keys, "moe_intermediate_size") or keys["intermediate_size"]
    shared = _first(keys, "shared_expert_intermediate_size") or _first(keys, "n_shared_experts") * inner
    plain = 3 * hidden * keys["intermediate_size"] * (layers - sparse) if layers > sparse else 0
    mixers = [_mixer(kind, keys) for kind in _kinds(keys)]
    return _Parts(
        experts=3 * hidden * inner * indices * sparse,
        attention=sum(weights for weights, _ in mixers),
        dense=plain + 3 * hidden * shared * sparse,
        head=vocabulary * hidden + hidden * indices * sparse,
        lookup=0 if keys.get("tie_word_embeddings") else vocabulary * hidden,
        indices=indices,
        per_token=_first(keys, "num_experts_per_tok", "top_k_experts") if indices else 0,
        kv_values=sum(values for _, values in mixers),
    )


def _first(keys: Mapping[str, Any], *names: str) -> int:
    return next((int(keys[name]) for name in names if keys.get(name)), 0)


def _sparse_layers(keys: Mapping[str, Any]) -> int:
    layers, step = keys["num_hidden_layers"], keys.get("decoder_sparse_step") or 1
    dense = set(keys.get("mlp_only_layers") or ()) | set(range(_first(keys, "first_k_dense_replace")))
    return sum(1 for layer in range(layers) if layer not in dense and (layer + 1) % step == 0)


def _kinds(keys: Mapping[str, Any]) -> list[str]:
    layers, interval = keys["num_hidden_layers"], _first(keys, "full_attention_interval")
    if keys.get("layer_types"):
        return list(keys["layer_types"])
    return [
        "linear_attention" if interval and (n + 1) % interval else "full_attention" for n in range(layers)
    ]


def _mixer(kind: str, keys: Mapping[str, Any]) -> tuple[float, float]:
    """Weights of one layer's attention, and the values that its cache keeps for every token of the context."""
    hidden, heads = keys["hidden_size"], keys["num_attention_heads"]
    if kind == "linear_attention":  # gated delta net: its state does not grow
        key = keys["linear_num_key_heads"] * keys["linear_key_head_dim"]
        value = keys["linear_num_value_heads"] * keys["linear_value_head_dim"]
        return hidden * (2 * key + 3 * value + 2 * keys["linear_num_value_heads"]), 0
    if keys.get("kv_lora_rank"):
        return _latent(keys), keys["kv_lora_rank"] + keys["qk_rope_head_dim"]
    size = keys.get("head_dim") or hidden // heads
    cached = 2 * size * (keys.get("num_key_value_heads") or heads)
    gate = heads if keys.get("attn_output_gate", "linear_num_value_heads" in keys) else 0
    return hidden * (size * (2 * heads + gate) + cached), 0 if kind == "sliding_attention" else cached


def _latent(keys: Mapping[str, Any]) -> float:
    """DeepSeek's multi-head latent attention."""
    hidden, heads, rank = keys["hidden_size"], keys["num_attention_heads"], keys["kv_lora_rank"]
    nope, rope, value = keys["qk_nope_head_dim"], keys["qk_rope_head_dim"], keys["v_head_dim"]
    query = keys.get("q_lora_rank")
    asked = query * (hidden + heads * (nope + rope)) if query else hidden * heads * (nope + rope)
    return float(asked + hidden * (rank + rope) + rank * heads * (nope + value) + heads * value * hidden)


def _quant(keys: Mapping[str, Any]) -> str:
    """Give a key of BYTES, or what it says where that is none: ModelOpt's mixtures, EXL3 and the like."""
    stored = keys.get("quantization_config")
    if not isinstance(stored, dict):
        return ""
    text = " ".join(str(stored.get(key) or "").lower() for key in ("quant_algo", "format", "quant_method"))
    named = re.search(r"nvfp4|mxfp4|fp8|float-quantized", text)
    if named:
        return named.group().replace("float-quantized", "fp8")
    groups = stored.get("config_groups")
    weights = [group.get("weights") or {} for group in groups.values()] if isinstance(groups, dict) else []
    bits = {stored.get("bits"), *(each.get("num_bits") for each in weights)} - {None}
    return f"int{bits.pop()}" if len(bits) == 1 else text or "unknown"


def _plain_attention(quant: str, keys: Mapping[str, Any]) -> bool:
    """gpt-oss has 4 bits in its experts alone; others list what they left as it was."""
    stored = keys.get("quantization_config") or {}
    left = [
        str(name)
        for key in ("modules_to_not_convert", "ignore", "exclude_modules")
        for name in stored.get(key) or ()
    ]
    return quant == "mxfp4" or any(re.search(r"self_attn(\W*[qkvo]_proj|\W*$)", name) for name in left)


def _dtype(keys: Mapping[str, Any]) -> str:
    return str(keys.get("dtype") or keys.get("torch_dtype") or "")
