"""A small random model of DeepSeek's architecture, whose attention keeps one latent of each token.

Its latent is as long as DeepSeek-R1's own, 512 and 64 elements: vLLM's kernel for a CPU takes no
other. It has one dense layer. With more, latents would depend on how vLLM 0.32.0 attends on a CPU while it
computes a prompt, and that is not sound: of four equal prompts at a time, each is answered otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import tiny_model

LAYERS, HEADS = 1, 4
HIDDEN, INTERMEDIATE = 128, 256
LATENT, ROTARY, NOPE, VALUE = 512, 64, 32, 32

CONFIG = {
    **{"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "dtype": "float32"},
    **{"vocab_size": tiny_model.VOCABULARY, "num_hidden_layers": LAYERS, "first_k_dense_replace": LAYERS},
    **{"num_attention_heads": HEADS, "num_key_value_heads": HEADS, "q_lora_rank": None},
    **{"hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE, "kv_lora_rank": LATENT},
    **{"qk_rope_head_dim": ROTARY, "qk_nope_head_dim": NOPE, "v_head_dim": VALUE},
    **{"n_routed_experts": 2, "num_experts_per_tok": 1, "n_shared_experts": 1, "n_group": 1},
    **{"topk_group": 1, "moe_intermediate_size": 32, "hidden_act": "silu", "rms_norm_eps": 1e-6},
    **{"max_position_embeddings": 2048, "rope_theta": 10000.0, "tie_word_embeddings": False},
    **{"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3, "num_nextn_predict_layers": 0},
}


def write(directory: Path, seed: int = 0) -> None:
    """Write config, weights and tokenizer."""
    tiny_model.write_with(directory, CONFIG, _tensors(), seed, spread=0.15)


def _tensors() -> Iterator[tuple[str, list[int]]]:
    yield "model.embed_tokens.weight", [tiny_model.VOCABULARY, HIDDEN]
    for layer in range(LAYERS):
        name = f"model.layers.{layer}"
        yield f"{name}.input_layernorm.weight", [HIDDEN]
        yield f"{name}.self_attn.q_proj.weight", [HEADS * (NOPE + ROTARY), HIDDEN]
        yield f"{name}.self_attn.kv_a_proj_with_mqa.weight", [LATENT + ROTARY, HIDDEN]
        yield f"{name}.self_attn.kv_a_layernorm.weight", [LATENT]
        yield f"{name}.self_attn.kv_b_proj.weight", [HEADS * (NOPE + VALUE), LATENT]
        yield f"{name}.self_attn.o_proj.weight", [HIDDEN, HEADS * VALUE]
        yield f"{name}.post_attention_layernorm.weight", [HIDDEN]
        yield f"{name}.mlp.gate_proj.weight", [INTERMEDIATE, HIDDEN]
        yield f"{name}.mlp.up_proj.weight", [INTERMEDIATE, HIDDEN]
        yield f"{name}.mlp.down_proj.weight", [HIDDEN, INTERMEDIATE]
    yield "model.norm.weight", [HIDDEN]
    yield "lm_head.weight", [tiny_model.VOCABULARY, HIDDEN]
