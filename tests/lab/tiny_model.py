"""
Write a tiny Qwen2 with random weights and a tokenizer trained on the spot; nothing is downloaded.

Run by the real engine's venv: tiny_model.py FOLDER. Needs tokenizers, torch and safetensors.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

TEXT = [
    "The quick brown fox jumps over the lazy dog.",
    "Hello, how are you today?",
    "You are a helpful assistant.",
    "Write a short story about two small computers.",
    "user assistant system",
    "0 1 2 3 4 5 6 7 8 9",
] * 4
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
VOCABULARY, HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD = 512, 128, 256, 2, 4, 2, 32
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "eos_token_id": 2,
    "bos_token_id": 0,
    "pad_token_id": 0,
    "use_sliding_window": False,
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
    "use_cache": True,
}


def tokenizer() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=SPECIAL, show_progress=False, initial_alphabet=alphabet
    )
    made.train_from_iterator(TEXT, trainer)
    return made


def weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape) * 0.05).to(torch.bfloat16)

    def ones() -> torch.Tensor:
        return torch.ones(HIDDEN, dtype=torch.bfloat16)

    made = {"model.embed_tokens.weight": random(VOCABULARY, HIDDEN), "model.norm.weight": ones()}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for name, size in (("q", HEADS * HEAD), ("k", KV_HEADS * HEAD), ("v", KV_HEADS * HEAD)):
            made[f"{prefix}self_attn.{name}_proj.weight"] = random(size, HIDDEN)
            made[f"{prefix}self_attn.{name}_proj.bias"] = random(size)
        made[prefix + "self_attn.o_proj.weight"] = random(HIDDEN, HEADS * HEAD)
        made[prefix + "mlp.gate_proj.weight"] = random(INNER, HIDDEN)
        made[prefix + "mlp.up_proj.weight"] = random(INNER, HIDDEN)
        made[prefix + "mlp.down_proj.weight"] = random(HIDDEN, INNER)
        made[prefix + "input_layernorm.weight"] = ones()
        made[prefix + "post_attention_layernorm.weight"] = ones()
    return made


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer().save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "bos_token": None,
            "model_max_length": 512,
            "chat_template": CHAT_TEMPLATE,
            "clean_up_tokenization_spaces": False,
        },
        "generation_config.json": {"eos_token_id": 2, "pad_token_id": 0, "do_sample": False},
    }
    for name, content in settings.items():
        (folder / name).write_text(json.dumps(content, indent=1))
    save_file(weights(), str(folder / "model.safetensors"), metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1))  # last: it says that all is there


if __name__ == "__main__":
    main(Path(sys.argv[1]))
