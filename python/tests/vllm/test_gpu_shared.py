"""The shared cache on a GPU, where a step that still runs may write what an aborted request held.

vLLM schedules asynchronously there: it frees the blocks of an aborted request while a step under way
writes them. Two servers load and keep prefixes behind many aborts, in caches too small for all of them.
Run by make test-gpu.
"""

from __future__ import annotations

import contextlib
import math
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import tiny_model
from api_client import Stream, at_once, completion, post
from gpu_servers import GPUServer, require_vllm_on_gpu
from pairs import Cell, Side, assert_nothing_held, found
from servers import Server, wait_all_ready

pytestmark = pytest.mark.real

STORE = 1 << 30
GPU_CACHE = "32M"
"""About 16,000 tokens of the model, where the prompts have 40,000."""
UNIT = 256
"""Tokens that the shared cache keeps as one; prompts end one token behind them."""
ANSWER = 16
ROUNDS, ABORTS = 4, 120
NEAR, FEW = 0.25, 8
"""How far apart, in nats, tokens may be that change places, and in how many of forty answers.

A prompt of which some blocks were computed beside others, and some alone, is rounded otherwise: after
such aborts answers differ so with no shared cache at all, too (`cache` false in the connector's config).
"""


@dataclass(frozen=True)
class Right:
    """A prompt, and its answers from a server that computed it alone: of all of it, and behind its cache."""

    prompt: tuple[int, ...]
    answers: frozenset[tuple[int, ...]]

    def strays(self, server: Server) -> float | None:
        """Ask; where the answer leaves the right ones, return by how many nats; None: it does not."""
        how = completion(self.prompt, ANSWER, logprobs=5, return_tokens_as_token_ids=True)
        answer = post(server.port, how)
        tokens = tuple(answer.tokens)
        if tokens in self.answers:
            return None
        agreed, right = max((_agreed(tokens, right), right) for right in self.answers)
        likely = answer.body["choices"][0]["logprobs"]["top_logprobs"][agreed]
        ahead: float = likely[_id(tokens[agreed])] - likely.get(_id(right[agreed]), -math.inf)
        return ahead


def _agreed(one: Sequence[int], other: Sequence[int]) -> int:
    return next(number for number, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1])


def _id(token: int) -> str:
    return f"token_id:{token}"


@dataclass
class Sharing:
    cell: Cell
    servers: tuple[Server, Server]
    prompts: list[Right]


def asked(server: Server, prompt: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(post(server.port, completion(prompt, ANSWER)).tokens)


@pytest.fixture(scope="module")
def sharing(meridian_binary: Path) -> Iterator[Sharing]:
    require_vllm_on_gpu()
    chance = random.Random(27)
    with contextlib.ExitStack() as undo:
        model = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="meridian-model-")))
        tiny_model.write(model, size=tiny_model.FOR_GPU)
        cell = Cell(meridian_binary, undo, "tcp", store_bytes=STORE)
        side = Side(("--kv-cache-memory-bytes", GPU_CACHE), block=16)
        first = cell.start_server("prefill", model, side, GPUServer)
        undo.callback(first.stop)
        both = Side(side.flags, block=16, at="decode", role="kv_both")
        second = cell.start_server("both", model, both, GPUServer)
        undo.callback(second.stop)
        wait_all_ready(first, second)
        prompts = []
        for number in range(40):
            prompt = tuple(chance.choices(tiny_model.TEXT, k=(1 + number % 7) * UNIT + 1))
            prompts.append(Right(prompt, frozenset(asked(first, prompt) for _ in range(2))))
        assert_nothing_held(first, second, seconds=30.0)
        yield Sharing(cell, (first, second), prompts)


def abort_many(server: Server, prompts: list[Right], chance: random.Random) -> int:
    """Ask and leave at any moment, also while a prefix is loaded; return how many left."""

    def ask(_: int) -> bool:
        body = completion(chance.choice(prompts).prompt, 64)
        return Stream().read(server.port, body, leave_after=chance.uniform(0.0, 0.15)).left

    return sum(at_once(ask, range(ABORTS), workers=24))


def test_what_is_loaded_behind_aborts_is_what_was_computed(sharing: Sharing) -> None:
    chance, left, near = random.Random(1), 0, 0
    before = [found(server) for server in sharing.servers]
    for number in range(ROUNDS):
        for server in sharing.servers:
            left += abort_many(server, sharing.prompts, chance)
        for server in sharing.servers:
            strayed = [nats for right in sharing.prompts if (nats := right.strays(server)) is not None]
            assert all(nats < NEAR for nats in strayed) and len(strayed) < FEW, (
                f"round {number}: answers of {server.name} are others, by {strayed} nats"
            )
            near += len(strayed)
    came = [found(server) - was for server, was in zip(sharing.servers, before, strict=True)]
    print(f"{left} of {2 * ROUNDS * ABORTS} were left; {came} tokens found; {near} answers near the right")
    for server in sharing.servers:
        config = server.get("/server_info?config_format=json").replace(" ", "")
        assert '"async_scheduling":true' in config, config[:4000]
    assert left > ROUNDS * ABORTS and min(came) > ROUNDS * 10_000
    assert_nothing_held(*sharing.servers, seconds=30.0)
