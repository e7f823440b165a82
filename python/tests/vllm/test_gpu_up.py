"""`meridian up --engine vllm` on a GPU, and what a hand-off adds to the first token there."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_model
from asking import Stream, completion
from gpu_servers import VLLM, require_vllm_on_gpu, vllm_environment
from servers import free_port

pytestmark = pytest.mark.real

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

LENGTHS = (513, 1025, 2049, 3969)
ROUNDS = 9
PATIENCE = 180.0


def write_model(directory: Path) -> None:
    tiny_model.write(directory, size=tiny_model.FOR_GPU)
    directory.joinpath("model.safetensors").unlink()
    config = directory / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), **SIZES}))
    tokenizer = directory / "tokenizer_config.json"
    tokenizer.write_text(json.dumps({**json.loads(tokenizer.read_text()), "model_max_length": 4096}))


def write_environment(directory: Path) -> None:
    """Make what looks as a virtual environment with this Python's vLLM."""
    directory.joinpath("bin").mkdir(parents=True)
    programs = {
        "python": f'#!/bin/sh\nexec {VLLM[0]} "$@"\n',
        "vllm": 'from vllm.entrypoints.cli.main import main\n\nif __name__ == "__main__":\n    main()\n',
    }
    for name, text in programs.items():
        program = directory / "bin" / name
        program.write_text(text)
        program.chmod(0o755)


def get(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        text = answer.read().decode()
        return json.loads(text) if text.startswith("{") else text


@pytest.fixture
def cell(tmp_path: Path, meridian_binary: Path) -> Iterator[tuple[int, int]]:
    """Run a cell; return the ports of its gateway and of its prefill server."""
    require_vllm_on_gpu()
    write_model(tmp_path / "model")
    write_environment(tmp_path / "venv")
    state = tempfile.mkdtemp(prefix="up-")  # sockets must not have long paths
    port, admin, log = free_port(), free_port(), tmp_path / "up.log"
    with log.open("w") as output:
        up = subprocess.Popen(
            [
                *(str(meridian_binary), "up", "--engine", "vllm", "--venv", str(tmp_path / "venv")),
                *("--model", str(tmp_path / "model"), "--state", state),
                *("--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}", f"--vllm-args={FLAGS}"),
                *("--prefill", "block=16", "--decode", "block=16"),
            ],
            env=vllm_environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        end = time.monotonic() + PATIENCE
        while not ready(port):
            assert up.poll() is None and time.monotonic() < end, log.read_text()[-4000:]
            time.sleep(0.5)
        servers = {engine["id"]: engine["url"] for engine in get(admin, "/debug/engines")["engines"]}
        yield port, int(servers["prefill-0"].rpartition(":")[2])
    finally:
        up.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            up.wait(60)
        up.kill()
        for part in sorted(Path(state).rglob("*.log")):
            print(f"==> {part.name}", *part.read_text(errors="replace").splitlines()[-15:], sep="\n")
        shutil.rmtree(state, ignore_errors=True)


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


def test_what_a_hand_off_adds(cell: tuple[int, int]) -> None:
    gateway, alone = cell
    model = get(alone, "/v1/models")["data"][0]["id"]
    chance = random.Random(14)
    for length in LENGTHS:
        taken: dict[str, list[float]] = {"alone": [], "handed over": []}
        for turn in range(ROUNDS + 2):
            for route, port in (("alone", alone), ("handed over", gateway)):
                prompt = chance.choices(tiny_model.TEXT, k=length)
                took, placement = first_token(port, prompt, model)
                if turn >= 2:  # the first of a length are slower
                    taken[route].append(took)
                assert port == alone or "prefill=prefill-0" in placement, placement
        medians = {route: statistics.median(times) for route, times in taken.items()}
        added = medians["handed over"] - medians["alone"]
        print(
            f"{length} tokens, {32 * length >> 10} MiB: first token after {medians['alone']:.1f} ms alone, "
            f"{medians['handed over']:.1f} ms with a hand-off: {added:+.1f} ms"
        )
    moved = os.linesep.join(
        line for line in get(alone, "/metrics").splitlines() if line.startswith("vllm:meridian_offers_total")
    )
    assert float(moved.rpartition(" ")[2]) >= len(LENGTHS) * ROUNDS, moved
