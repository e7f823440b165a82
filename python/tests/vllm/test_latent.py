"""A model of DeepSeek's architecture: the decode server goes on with latents that it did not compute."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_deepseek
import tiny_model
from api_client import completion, post
from oracle import ANSWER, LONGEST, Case
from pairs import KEEP, Pair, Side, running_pair, told

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("told")]
__all__ = ["told"]

BLOCK = 16
"""The only one that vLLM's kernel for latents on a CPU takes."""

KERNEL = ("--attention-backend", "CPU_MLA")
"""Where a processor has AMX, vLLM would choose one that takes bfloat16 alone."""


@pytest.fixture(scope="module")
def pair(meridian_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    model = tmp_path_factory.mktemp("latent") / "model"
    tiny_deepseek.write(model)
    side = Side(KERNEL, block=BLOCK, deadline=30.0, keep=30.0)
    with running_pair(meridian_binary, model, side, side) as running:
        yield running


@pytest.fixture(scope="module")
def cases(pair: Pair) -> list[Case]:
    """How the prefill server goes on alone with an answer that it has begun.

    On a CPU vLLM 0.32.0 computes prompts and answers with two kernels for latents, which do not agree.
    So what is handed off is a prompt with the first token of its answer: that token is computed as part of
    an answer here as there, from the latents of the prompt.
    """
    chance = random.Random(18)
    lengths = [1, BLOCK - 1, BLOCK, BLOCK + 1, LONGEST, *(chance.randint(2, LONGEST) for _ in range(11))]
    found = []
    for length in lengths:
        prompt = tuple(chance.choices(tiny_model.TEXT, k=length))
        first, *rest = post(pair.prefill.port, completion(prompt, ANSWER)).tokens
        found.append(Case((*prompt, first), tuple(rest)))
    assert len({case.answer for case in found}) == len(found), "answers that all are the same show nothing"
    return found


def test_the_same_tokens(pair: Pair, cases: list[Case]) -> None:
    computed, handed_over = pair.computed(), pair.handed_over()
    answers = [tuple(pair.ask(case).tokens) for case in cases]
    assert answers == [case.answer for case in cases]
    assert pair.failed() == 0
    # The last token of a prompt is always computed where it is decoded.
    assert pair.computed() - computed <= 2 * len(cases)
    assert pair.handed_over() - handed_over > sum(len(case.prompt) for case in cases) / 2
    pair.assert_nothing_held()


def test_bytes_changed_at_every_try(pair: Pair, cases: list[Case]) -> None:
    """The control: latents that are wrong never enter the decode server, which computes the prompt itself."""
    prompt = max((case.prompt for case in cases), key=len)
    computed = Case(prompt, tuple(post(pair.prefill.port, completion(prompt, ANSWER)).tokens))
    failed, handed_over = pair.failed(), pair.handed_over()
    with pair.cell.changed_bytes():
        computed.check(pair.ask(computed).tokens)
    pair.until_failed(failed + 1)
    assert pair.handed_over() == handed_over
    pair.assert_nothing_held(KEEP * 4)
