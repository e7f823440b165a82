"""Thoughts that leave for the cell's cache at their end: a request that loses its blocks gets them back."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
import tiny_model
from api_client import at_once, completion, post
from budget_checks import END, REASONING, START
from installed import require_vllm, run_unit
from pairs import Cell, Side, assert_nothing_held
from servers import BLOCK, Server

pytestmark = pytest.mark.real

STORE = 64 << 20
BLOCKS = 9
"""Of which vLLM keeps one. Each of two requests ends with five, so that the second has to give up four."""
PROMPT, THOUGHT, ANSWER = BLOCK, 40, 3 * BLOCK + 8
ASKED = (0, 2)
"""Prompts to which the model thinks as long as it may."""
KEPT = 2 * BLOCK
"""Tokens that leave at the end of a thought: a block of prompt, and one of the thought."""


def answer(server: Server, number: int, salt: str) -> list[int]:
    """Ask for an answer. What is kept under another salt is not found."""
    prompt = [tiny_model.TEXT[(number * 31 + 7 * at) % 256] for at in range(PROMPT - 1)]
    asked = completion([*prompt, START], ANSWER, thinking_token_budget=THOUGHT, cache_salt=salt)
    return post(server.port, asked).tokens


def both(server: Server, salt: str) -> list[list[int]]:
    """Ask for two answers at once, one of which loses its blocks."""
    before = server.metric("vllm:num_preemptions_total")
    answers = at_once(lambda number: answer(server, number, salt), ASKED)
    assert_nothing_held(server, seconds=30)
    assert server.metric("vllm:num_preemptions_total") > before, "nothing lost its blocks"
    return answers


def counted(server: Server) -> tuple[float, float]:
    """Return how many thoughts have left, and how many tokens came back."""
    names = ("kept_thoughts", "recalled_tokens")
    left, back = (server.metric(f"vllm:meridian_{name}_total") for name in names)
    return left, back


def test_a_preempted_request_gets_its_thought_back(tmp_path: Path, meridian_binary: Path) -> None:
    require_vllm()
    tiny_model.write(tmp_path / "tiny")
    flags = (
        *("--reasoning-config", json.dumps(REASONING), "--num-gpu-blocks-override", str(BLOCKS)),
        *("--max-model-len", str(6 * BLOCK)),
        "--no-enable-prefix-caching",  # else blocks that are not overwritten yet are found in place
    )

    def start(name: str, keeps: str) -> Server:
        server = cell.start_server(
            name, tmp_path / "tiny", Side(flags, role="kv_both", extra={"keep_thoughts": keeps})
        )
        undo.callback(server.stop)
        server.wait_ready()
        return server

    with contextlib.ExitStack() as undo:
        cell = Cell(meridian_binary, undo, store_bytes=STORE)
        (cell.logs / "meridian.toml").write_text("[disagg]\noffload_threshold_blocks = 1\n")
        server = start("prefill", "always")
        right = [answer(server, number, "alone") for number in ASKED]
        assert all(THOUGHT - 2 <= one.index(END) <= THOUGHT + 1 for one in right), "thoughts are not as long"
        assert right[0] != right[1]
        assert server.metric("vllm:num_preemptions_total") == 0
        assert both(server, "both") == right
        left, back = counted(server)
        print(f"{left:g} thoughts left, {back:g} tokens came back")
        assert left == 4 and back >= KEPT
        cell.agents["prefill"].kill()
        assert both(server, "without an agent") == right
        assert counted(server) == (left, back)
        server.stop()
        server = start("decode", "never")
        assert both(server, "never") == right
        assert counted(server) == (0, 0)


def test_with_made_up_outputs(tmp_path: Path) -> None:
    """On vLLM's own schedulers and blocks, of which thoughts_unit.py plays the workers."""
    tiny_model.write(tmp_path / "tiny")
    run_unit("thoughts_unit.py", UNIT_MODEL=str(tmp_path / "tiny"))
