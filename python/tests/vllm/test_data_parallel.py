"""Two data-parallel ranks of one decode server, behind one address: each takes what is sealed for it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_model
from api_client import at_once, completion, post
from oracle import ANSWER, Case
from pairs import Pair, Side, running_pair, told

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("told")]
__all__ = ["told"]

WORKERS = 6

# A worker of vLLM was once seen to say nothing to its engine for a minute, on the prefill server, and all who
# waited for its prompts with it. So a rank must lose patience before a client does, which waits a minute.
KEEP, DEADLINE = 30.0, 10.0


@pytest.fixture(scope="module")
def pair(meridian_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    model = tmp_path_factory.mktemp("ranks") / "model"
    tiny_model.write(model)
    one = Side(keep=KEEP, deadline=DEADLINE)
    # By itself vLLM starts two servers of HTTP too, whose counters are not there before they have counted.
    flags = ("--data-parallel-size", "2", "--api-server-count", "1")
    two = Side(flags, keep=KEEP, deadline=DEADLINE)
    with running_pair(meridian_binary, model, one, two) as running:
        running.wait_known(servers=3)
        yield running


def test_both_ranks_take_what_is_theirs(pair: Pair) -> None:
    chance = random.Random(2)
    prompts = [tuple(chance.choices(tiny_model.TEXT, k=chance.randint(40, 600))) for _ in range(24)]
    cases = [Case(p, tuple(post(pair.prefill.port, completion(p, ANSWER)).tokens)) for p in prompts]
    computed = pair.computed()
    for case, answer in zip(cases, at_once(pair.ask, cases, workers=WORKERS), strict=True):
        case.check(answer.tokens)
    assert "(leg)" not in pair.decode.log_text(), "a leg came to another rank than its own"
    for rank in ("0", "1"):
        assert pair.decode.metric("vllm:meridian_handoff_tokens_count", engine=rank) > 0
    late = pair.failed()
    assert late <= WORKERS, "more caches did not come than wait for one prefill server at a time"
    computed = pair.computed() - computed
    assert computed <= 2 * len(cases) + late * 600, "prompts were computed where they were decoded"
    assert pair.handed_over() > sum(map(len, prompts)) / 2
    pair.assert_nothing_held(KEEP + DEADLINE)
