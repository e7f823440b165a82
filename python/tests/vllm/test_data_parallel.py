"""Two data-parallel ranks of one decode server, behind one address: each takes what is sealed for it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_model
from asking import at_once, completion, post
from oracle import ANSWER, Case
from pairs import Pair, Side, running_pair, told

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("told")]
__all__ = ["told"]


@pytest.fixture(scope="module")
def pair(meridian_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    model = tmp_path_factory.mktemp("ranks") / "model"
    tiny_model.write(model)
    one = Side(keep=60.0, deadline=30.0)
    # By itself vLLM starts two servers of HTTP too, whose counters are not there before they have counted.
    two = Side(("--data-parallel-size", "2", "--api-server-count", "1"), keep=60.0, deadline=30.0)
    with running_pair(meridian_binary, model, one, two) as running:
        running.wait_known(servers=3)
        yield running


def test_both_ranks_take_what_is_theirs(pair: Pair) -> None:
    chance = random.Random(2)
    prompts = [tuple(chance.choices(tiny_model.TEXT, k=chance.randint(40, 600))) for _ in range(24)]
    cases = [Case(p, tuple(post(pair.prefill.port, completion(p, ANSWER)).tokens)) for p in prompts]
    computed = pair.computed()
    for case, answer in zip(cases, at_once(pair.ask, cases, workers=6), strict=True):
        case.check(answer.tokens)
    assert pair.failed() == 0
    assert pair.computed() - computed <= 2 * len(cases), "prompts were computed where they were decoded"
    assert pair.handed_over() > sum(map(len, prompts)) / 2
    for rank in ("0", "1"):
        assert pair.decode.metric("vllm:meridian_handoff_tokens_count", engine=rank) > 0
    pair.assert_nothing_held()
