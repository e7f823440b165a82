"""Real vLLM servers whose caches lie on one GPU, in a cell.

Tokens are compared with what the prefill server answers from its own prefix cache: a whole prompt
and the end of one behind a cache are computed by other kernels, which round differently. Prompts end
one token behind a block, of either size, so that every server computes one token on top of what it has.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import tiny_model
from api_client import Answer, at_once, completion, post
from gpu_servers import GPUServer, OtherLayout, require_vllm_on_gpu
from oracle import Case
from pairs import Cell, Side, assert_nothing_held, have_offered
from servers import Server, wait_all_ready
from waiting import until

BLOCK, LARGER = 16, 32
"""Tokens in a block of most servers, and of one."""
ANSWER = 24
PREFILL = "prefill"
CHUNK = 512
"""Tokens that the prefill server computes in one step: longer prompts are computed in pieces."""

Wanted = Mapping[str, tuple[Side, type[GPUServer]]]
PREFILLS: Wanted = {PREFILL: (Side(("--max-num-batched-tokens", str(CHUNK)), block=BLOCK), GPUServer)}
DECODES: Wanted = {
    "pull": (Side(block=BLOCK, at="decode"), GPUServer),
    "push": (Side(block=BLOCK, at="decode", mode="push"), GPUServer),
    "other": (Side(block=LARGER, at="decode"), OtherLayout),
}


@dataclass
class World:
    """A cell, and its servers by name."""

    cell: Cell
    model: Path
    servers: dict[str, Server]
    undo: contextlib.ExitStack
    seeds: Iterator[int] = field(default_factory=itertools.count)

    @property
    def prefill(self) -> Server:
        return self.servers[PREFILL]

    def prompt(self, blocks: int) -> tuple[int, ...]:
        """Return a prompt that no server has seen, one token longer than so many of the larger blocks."""
        chance = random.Random(next(self.seeds))
        return tuple(chance.choices(tiny_model.TEXT, k=blocks * LARGER + 1))

    def asked(self, blocks: int) -> tuple[Case, list[int]]:
        """Return a prompt with its answer from the prefill server's cache, and the answer before that."""
        prompt = self.prompt(blocks)
        fresh = post(self.prefill.port, completion(prompt, ANSWER)).tokens
        return self.cached(prompt), fresh

    def cached(self, prompt: Sequence[int], at: Server | None = None) -> Case:
        """Return a prompt with the answer of a server that has it in its cache."""
        answer = post((at or self.prefill).port, completion(prompt, ANSWER))
        return Case(tuple(prompt), tuple(answer.tokens))

    def hand_over(self, case: Case, to: Server) -> Answer:
        return post(to.port, case.request(kv_transfer_params=have_offered(self.prefill, case)))

    def until_handed_over(self, to: Server, seconds: float = 30.0) -> None:
        """Ask until a cache comes over: the agents have met."""
        before = handed_over(to)

        def came() -> bool:
            with contextlib.suppress(AssertionError):
                self.hand_over(Case(self.prompt(2), (0,) * ANSWER), to)
            return handed_over(to) > before

        until(f"a cache comes to {to.name}", came, seconds)

    def assert_nothing_held(self) -> None:
        assert_nothing_held(*[s for s in self.servers.values() if s.alive()], seconds=30.0)

    # What is so whatever carries the bytes.

    def check_tokens(self, name: str) -> None:
        """Prompts of all lengths, one after the other."""
        decode, same = self.servers[name], 0
        sizes = (1, 2, 3, 9, 16, 32, 61)
        before, wanted = handed_over(decode), sum(blocks * LARGER + 1 for blocks in sizes)
        for blocks in sizes:
            case, fresh = self.asked(blocks)
            case.check(self.hand_over(case, decode).tokens)
            case.check(post(decode.port, case.request()).tokens)  # from its own prefix cache
            same += tuple(fresh) == case.answer
        until("all caches came", lambda: handed_over(decode) - before == wanted)
        print(f"{name}: {len(sizes)} equal; a fresh prompt gave the same at the prefill server {same} times")
        self.assert_nothing_held()

    def check_load(self, name: str) -> None:
        """What was handed over under load is what the prefill server has: each is asked once more, alone."""
        decode, prompts = self.servers[name], [self.prompt(2 + 2 * i) for i in range(24)]
        before = handed_over(decode)
        answers = at_once(lambda p: self.hand_over(Case(p, (0,) * ANSWER), decode), prompts)
        assert all(len(answer.tokens) == ANSWER for answer in answers)
        until("all caches came", lambda: handed_over(decode) - before == sum(map(len, prompts)))
        for prompt in prompts:
            self.cached(prompt).check(post(decode.port, completion(prompt, ANSWER)).tokens)
        self.assert_nothing_held()

    def check_reborn(self, to: Server) -> None:
        """Start the prefill server anew: it finds room, and hands over."""
        self.prefill.start()
        self.prefill.wait_ready()
        self.until_handed_over(to)
        case, _ = self.asked(15)
        case.check(self.hand_over(case, to).tokens)
        self.assert_nothing_held()


def handed_over(server: Server) -> float:
    return server.metric("vllm:meridian_handoff_tokens_sum")


def failed(server: Server) -> float:
    return server.metric("vllm:meridian_handoffs_failed_total")


def vram_used() -> int:
    """Return how much of the first GPU's memory is taken, in MiB."""
    asked = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    return int(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()[0])


@contextlib.contextmanager
def running_world(binary: Path, wanted: Wanted, fabrics: str) -> Iterator[World]:
    """Run servers that start at the same time, and agents with these fabrics."""
    require_vllm_on_gpu()
    with contextlib.ExitStack() as undo:
        model = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="meridian-model-")))
        tiny_model.write(model, size=tiny_model.FOR_GPU)
        cell = Cell(binary, undo, fabrics)
        servers: dict[str, Server] = {}
        began = time.monotonic()
        for name, (side, kind) in wanted.items():
            servers[name] = cell.start_server(name, model, side, kind)
            undo.callback(servers[name].stop)
        wait_all_ready(*servers.values())
        print(f"{len(servers)} servers were ready after {time.monotonic() - began:.0f} s")
        world = World(cell, model, servers, undo)
        for name in DECODES:
            world.until_handed_over(servers[name])
        yield world


@pytest.fixture(autouse=True)
def told(world: World, request: pytest.FixtureRequest) -> Iterator[None]:
    """Show what everybody said where a test fails."""
    before = request.session.testsfailed
    yield
    if request.session.testsfailed > before:
        print(world.cell.said())
