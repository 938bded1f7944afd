"""config.json into what the memory model needs."""

import pytest

from orchestrator.bench.shape import known_shape, shape_from_config
from orchestrator.load.baseline import shipped_shapes

QWEN3_30B = {
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "intermediate_size": 6144,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}
QWEN3_235B = QWEN3_30B | {
    "num_hidden_layers": 94,
    "hidden_size": 4096,
    "num_attention_heads": 64,
    "moe_intermediate_size": 1536,
    "intermediate_size": 12288,
}
GPT_OSS = {
    "num_hidden_layers": 36,
    "hidden_size": 2880,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "intermediate_size": 2880,
    "vocab_size": 201088,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "quantization_config": {"quant_method": "mxfp4"},
}
LLAMA = {
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
DEEPSEEK_V3 = {
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "intermediate_size": 18432,
    "first_k_dense_replace": 3,
    "vocab_size": 129280,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
QWEN3_NEXT = {
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "intermediate_size": 5120,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
    "vocab_size": 151936,
}
QWEN35_27B = {
    "text_config": {
        "num_hidden_layers": 64,
        "hidden_size": 5120,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "attn_output_gate": True,
        "intermediate_size": 17408,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 16,
        "linear_num_key_heads": 16,
        "linear_key_head_dim": 128,
        "linear_num_value_heads": 48,
        "linear_value_head_dim": 128,
        "vocab_size": 248320,
    },
    "tie_word_embeddings": False,
}
MIXTRAL = LLAMA | {"num_local_experts": 8, "num_experts_per_tok": 2, "vocab_size": 32000}
# Name, config, and in 10^9 what was published: all parameters, and those of one token without the input embedding.
PUBLISHED = (
    ("Qwen3-30B-A3B", QWEN3_30B, 30.5, 3.0),
    ("Qwen3-235B-A22B", QWEN3_235B, 235, 21.6),
    ("gpt-oss-120b", GPT_OSS, 116.8, 5.13),
    ("Llama-3.1-8B", LLAMA, 8.03, 7.5),
    ("DeepSeek-V3", DEEPSEEK_V3, 671, 37),
    ("Qwen3-Next-80B-A3B", QWEN3_NEXT, 80, 3.5),
    ("Qwen3.5-27B", QWEN35_27B, 27, 25.6),
    ("Mixtral-8x7B", MIXTRAL, 46.7, 12.8),
)
FP8 = {"quantization_config": {"quant_method": "fp8"}}


@pytest.mark.parametrize(
    ("name", "config", "parameters", "active"), PUBLISHED, ids=[row[0] for row in PUBLISHED]
)
def test_the_counts_are_those_that_were_published(name, config, parameters, active):
    """Within 3 %: no other number of the model is as sure."""
    shape = shape_from_config(config, None, name)

    assert shape.parameters / 1e9 == pytest.approx(parameters, rel=0.03)
    assert shape.active / 1e9 == pytest.approx(active, rel=0.03)


def test_the_text_model_of_a_vision_model_is_counted():
    """Its config is nested, the quantisation stands beside it."""
    shape = shape_from_config({"text_config": QWEN3_30B, "vision_config": {"depth": 27}, **FP8}, None, "vl")

    assert (shape.experts, shape.experts_per_token, shape.expert_bytes) == (128, 8, 1)


def test_only_layers_whose_cache_grows_have_one():
    """A sliding window, a delta net: their state does not grow with the context."""
    assert shape_from_config(GPT_OSS, None, "gpt-oss").kv_bytes_token == 18 * 2 * 8 * 64 * 2
    assert shape_from_config(QWEN3_NEXT, None, "next").kv_bytes_token == 12 * 2 * 2 * 256 * 2
    assert shape_from_config(DEEPSEEK_V3, None, "v3").kv_bytes_token == 61 * (512 + 64) * 2


@pytest.mark.parametrize(
    ("stored", "expert_bytes"),
    [
        ({}, 2),
        ({"quant_method": "fp8"}, 1),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 0.5625),
        ({"quant_method": "gptq", "bits": 4}, 0.52),
        ({"quant_method": "compressed-tensors", "format": "float-quantized"}, 1),
        (
            {
                "quant_method": "compressed-tensors",
                "format": "pack-quantized",
                "config_groups": {"group_0": {"weights": {"num_bits": 4}}},
            },
            0.52,
        ),
    ],
    ids=str,
)
def test_the_bytes_of_a_weight_follow_from_its_quantisation(stored, expert_bytes):
    """As the checkpoints of the Hub spell it."""
    config = QWEN3_30B | ({"quantization_config": stored} if stored else {})

    assert shape_from_config(config, None, "x").expert_bytes == expert_bytes


def test_what_no_quantisation_touches_stays_at_16_bits():
    """lm_head and routers always; in gpt-oss everything but the experts; elsewhere what the config lists."""
    fp8 = shape_from_config(QWEN3_30B | FP8, None, "x")
    listed = {"quantization_config": {"quant_method": "fp8", "ignore": ["lm_head", "re:.*self_attn.*"]}}

    assert 1 < fp8.dense_bytes < 1.5
    assert shape_from_config(GPT_OSS, None, "gpt-oss").dense_bytes == 2
    assert shape_from_config(QWEN3_30B | listed, None, "x").dense_bytes > 1.9


def test_the_size_of_the_checkpoint_corrects_the_bytes():
    """
    gpt-oss-120b has 65.25 GB; a group size of 32 in place of 128 shows there alone.
    """
    shape = shape_from_config(GPT_OSS, 65_250_000_000, "gpt-oss")

    assert shape.expert_bytes == pytest.approx(0.532, abs=0.001)
    assert "the size of the checkpoint" in shape.source


@pytest.mark.parametrize(
    ("config", "size"),
    [
        (QWEN3_30B, 20_000_000_000),  # 61 GB by its keys
        (QWEN3_30B | {"hybrid_override_pattern": "MEM*"}, None),
        (QWEN3_30B | {"quantization_config": {"quant_method": "exl3"}}, None),
        (QWEN3_30B | {"num_hidden_layers": "48"}, None),
        ({"model_type": "gpt2", "n_layer": 12}, None),
        ({"text_config": [1]}, None),
        (QWEN3_30B | {"quantization_config": {"config_groups": {"group_0": [4]}}}, None),
        ({}, None),
        ({key: value for key, value in QWEN3_30B.items() if key != "num_experts_per_tok"}, None),
        (QWEN3_30B | {"num_experts_per_tok": 128}, None),
    ],
    ids=[
        "another size",
        "mamba layers",
        "unknown bytes",
        "text for a number",
        "other keys",
        "no mapping",
        "odd groups",
        "empty",
        "unknown experts per token",
        "all experts for every token",
    ],
)
def test_a_config_that_does_not_tell_gives_no_shape(config, size):
    """A wrong limit is worse than none."""
    assert shape_from_config(config, size, "x") is None


@pytest.mark.parametrize(
    "name", ["Qwen/Qwen3.5-122B-A10B-FP8", "/srv/models/qwen3.5-122b-a10b-fp8/", "Qwen3.5-122B-A10B-FP8"]
)
def test_a_model_is_known_by_its_last_name(name):
    """A folder of the name is the model."""
    assert known_shape(name, shipped_shapes()).experts == 256


def test_an_unknown_model_has_no_shape():
    """Also one whose name only begins alike."""
    assert known_shape("Qwen/Qwen3.5-122B-A10B", shipped_shapes()) is None
