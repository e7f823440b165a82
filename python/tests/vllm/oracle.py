"""What a vLLM that serves alone answers to the prompts that all tests use."""

from __future__ import annotations

import functools
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import tiny_model
from api_client import at_once, completion, post
from installed import require_vllm
from servers import Server

PROMPTS = 200
LONGEST = 900
ANSWER = 24
"""Tokens of every answer, but for a few long ones."""
LONG_ANSWERS, LONG_ANSWER = 16, 200


@dataclass(frozen=True)
class Case:
    """A prompt, and the answer that is right."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]

    def request(self, **more: object) -> dict[str, object]:
        return completion(self.prompt, len(self.answer), **more)

    def check(self, tokens: Sequence[int], begun: bool = False) -> None:
        """Fail where these are not the tokens of the answer, or of its beginning."""
        right = self.answer[: len(tokens)] if begun else self.answer
        assert tuple(tokens) == right, f"wrong tokens: {list(tokens)}, not {list(right)}"


@dataclass(frozen=True)
class Oracle:
    """The model, and what it answers."""

    model: Path
    cases: tuple[Case, ...]
    long_answers: tuple[Case, ...]

    def long(self, tokens: int) -> list[Case]:
        """Return the cases whose prompts have more tokens than this."""
        return [case for case in self.cases if len(case.prompt) > tokens]


def random_prompts(seed: int = 8) -> list[tuple[int, ...]]:
    """Return prompts of 1 to 900 tokens, of which every other begins as some others do."""
    chance = random.Random(seed)
    beginnings = [chance.choices(tiny_model.TEXT, k=chance.randint(20, 500)) for _ in range(8)]
    prompts = []
    for number in range(PROMPTS):
        length = chance.randint(1, LONGEST)
        tokens = chance.choices(tiny_model.TEXT, k=length)
        if number % 2:
            tokens = (chance.choice(beginnings) + tokens)[:length]
        prompts.append(tuple(tokens))
    return prompts


@functools.cache
def ask_oracle() -> Oracle:
    """Start a vLLM without any connector, ask it everything, and stop it; once in a run."""
    require_vllm()
    scratch = Path(tempfile.mkdtemp(prefix="meridian-vllm-"))
    model = scratch / "model"
    tiny_model.write(model)
    prompts = random_prompts()
    server = Server("alone", model, scratch / "alone.log")
    try:
        server.wait_ready()
        cases = _answered(server, prompts, ANSWER)
        short = [prompt[:100] for prompt in prompts if len(prompt) > 100][:LONG_ANSWERS]
        return Oracle(model, cases, _answered(server, short, LONG_ANSWER))
    finally:
        server.stop()


@pytest.fixture(scope="module")
def oracle() -> Oracle:
    """Give it to the tests of a module that imports this."""
    return ask_oracle()


def _answered(server: Server, prompts: list[tuple[int, ...]], tokens: int) -> tuple[Case, ...]:
    answers = at_once(lambda prompt: tuple(post(server.port, completion(prompt, tokens)).tokens), prompts)
    assert all(len(answer) == tokens for answer in answers)
    return tuple(map(Case, prompts, answers))
