"""Small random models, and what Hugging Face transformers computes with them.

    make_golden.py DIRECTORY

writes a directory per model: config.json and weights as transformers saves them,
and golden.safetensors:

    prompt  I64 [prompt]               the first tokens
    greedy  I64 [generated]            what follows, one most likely token after another
    rows    I64 [rows]                 positions of which there are logits
    logits  F32 [rows, vocabulary]     after each of these positions

Weights are rounded to the type they are saved in, then read again and computed
with in fp32.
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

PROMPT, GENERATED = 24, 200
VOCABULARY = 128

# Weights this large make sharp choices: the two most likely tokens are seldom close.
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.25,
    "bos_token_id": 1,
    "eos_token_id": 2,
}

LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

# name: model class, configuration, type of the weights, most bytes in one file
MODELS = {
    "llama-gqa-bf16": (
        LlamaForCausalLM,
        LlamaConfig(**SHAPE, num_attention_heads=6, num_key_value_heads=2, tie_word_embeddings=False),
        torch.bfloat16,
        "1GB",
    ),
    "llama3-rope-tied-f16": (
        LlamaForCausalLM,
        LlamaConfig(
            **SHAPE,
            num_attention_heads=4,
            num_key_value_heads=4,
            head_dim=20,
            tie_word_embeddings=True,
            rope_parameters=LLAMA3_ROPE,
        ),
        torch.float16,
        "1GB",
    ),
    "qwen3-tied-bf16": (
        Qwen3ForCausalLM,
        Qwen3Config(
            **SHAPE,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=32,
            tie_word_embeddings=True,
            rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
        ),
        torch.bfloat16,
        "1GB",
    ),
    "qwen3-sharded-f32": (
        Qwen3ForCausalLM,
        Qwen3Config(
            **(SHAPE | {"hidden_size": 32, "intermediate_size": 48}),
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=16,
            tie_word_embeddings=False,
        ),
        torch.float32,
        "48KB",
    ),
}


def randomise_norms(model: torch.nn.Module) -> None:
    """Norms begin as ones, which would hide a norm that is left out or mixed up."""
    for name, parameter in model.named_parameters():
        if "norm" in name:
            parameter.data.uniform_(0.5, 1.5)


@torch.no_grad()
def make(directory: pathlib.Path, kind: type, config, dtype: torch.dtype, shard: str) -> None:
    torch.manual_seed(20)
    model = kind(config).to(torch.float32)
    randomise_norms(model)
    model.to(dtype)
    model.generation_config.eos_token_id = [2, 3]
    model.save_pretrained(directory, max_shard_size=shard)
    model = kind.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()

    tokens = torch.randint(0, VOCABULARY, (1, PROMPT))
    prompt = tokens[0].clone()
    for _ in range(GENERATED):
        logits = model(tokens, use_cache=False).logits[0, -1]
        tokens = torch.cat([tokens, logits.argmax().reshape(1, 1)], dim=1)
    rows = torch.tensor([*range(PROMPT), *range(PROMPT + GENERATED - 8, PROMPT + GENERATED)])
    golden = {
        "prompt": prompt,
        "greedy": tokens[0, PROMPT:].clone(),
        "rows": rows,
        "logits": model(tokens, use_cache=False).logits[0, rows].contiguous(),
    }
    save_file(golden, directory / "golden.safetensors")
    for file in directory.iterdir():
        file.chmod(0o644)
    top = model(tokens, use_cache=False).logits[0].topk(2).values
    closest = (top[:, 0] - top[:, 1])[PROMPT - 1 : -1].min().item()
    distinct = len(set(tokens[0, PROMPT:].tolist()))
    print(json.dumps({"model": directory.name, "closest choice": closest, "distinct tokens": distinct}))


def main() -> None:
    torch.set_num_threads(1)
    root = pathlib.Path(sys.argv[1])
    for name, (kind, config, dtype, shard) in MODELS.items():
        make(root / name, kind, config, dtype, shard)


if __name__ == "__main__":
    main()
