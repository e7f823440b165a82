"""How long the first token takes with a model as those of a billion parameters are, alone and handed over."""

from __future__ import annotations

import json
import random
import statistics
import time
import urllib.request
from pathlib import Path
from typing import Any

import tiny_model
from api_client import Stream, completion

FLAGS = (
    "--load-format dummy --dtype bfloat16 --max-model-len 4096 --max-num-seqs 16 --kv-cache-memory-bytes 8G "
    "--gpu-memory-utilization 0.05 -cc.mode=0 -cc.cudagraph_mode=FULL_DECODE_ONLY "
    "-cc.cudagraph_capture_sizes=[1,2,4]"
)
SIZES = {
    **{"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "head_dim": 64},
    **{"num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 4096},
}
"""A model as those of a billion parameters are: 32 KiB of cache a token. Its weights are vLLM's dummies."""

TOKEN_BYTES = 32 << 10
LENGTHS = (513, 1025, 2049, 3969)
ROUNDS = 9


def write_model(directory: Path) -> None:
    tiny_model.write(directory, size=tiny_model.FOR_GPU)
    directory.joinpath("model.safetensors").unlink()
    config = directory / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **SIZES}))
    tokenizer = directory / "tokenizer_config.json"
    tokenizer.write_text(json.dumps({**json.loads(tokenizer.read_text()), "model_max_length": 4096}))


def get(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        text = answer.read().decode()
        return json.loads(text) if text.startswith("{") else text


def ready(port: int) -> bool:
    try:
        get(port, "/ready")
    except OSError:
        return False
    return True


def first_token(port: int, prompt: list[int], model: str) -> tuple[float, str]:
    """Return how long the first token took, in milliseconds, and where it was placed."""
    body = {**completion(prompt, 2), "model": model}
    began = time.perf_counter()
    stream = Stream().read(port, body)
    assert stream.complete and stream.first is not None, stream
    return (stream.first - began) * 1000, stream.placement


def compare_first_tokens(alone: int, handed: int, placed: str, name: str) -> int:
    """Ask two ports in turn, print what the second one adds, and return how many tokens were handed over.

    Every prompt is new. The first two of a length are not counted: they are slower.
    """
    model = get(alone, "/v1/models")["data"][0]["id"]
    chance, tokens = random.Random(14), 0
    for length in LENGTHS:
        taken: dict[str, list[float]] = {"alone": [], "handed over": []}
        for turn in range(ROUNDS + 2):
            for route, port in (("alone", alone), ("handed over", handed)):
                prompt = chance.choices(tiny_model.TEXT, k=length)
                took, placement = first_token(port, prompt, model)
                if turn >= 2:
                    taken[route].append(took)
                if port == handed:
                    assert placement.startswith(f"prefill={placed}"), placement
                    tokens += length
        alone_ms, handed_ms = (statistics.median(times) for times in taken.values())
        print(
            f"{name}, {length} tokens, {TOKEN_BYTES * length >> 20} MiB: first token after {alone_ms:.1f} ms "
            f"alone, {handed_ms:.1f} ms with a hand-off: {handed_ms - alone_ms:+.1f} ms"
        )
    return tokens
