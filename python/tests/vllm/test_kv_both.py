"""Two servers of which each computes prompts for the other, and generates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from api_client import Stream, at_once, post
from oracle import Case, Oracle, oracle
from pairs import Pair, Side, running_pair, told
from waiting import until

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("told")]
__all__ = ["oracle", "told"]


@pytest.fixture(scope="module")
def pair(oracle: Oracle, meridian_binary: Path) -> Iterator[Pair]:
    both = Side(role="kv_both")
    with running_pair(meridian_binary, oracle.model, both, both) as running:
        yield running


def test_each_takes_from_the_other(pair: Pair, oracle: Oracle) -> None:
    cases = oracle.long(100)[:24]

    def hand_over(number: int) -> None:
        giver, receiver = (pair.prefill, pair.decode) if number % 2 else (pair.decode, pair.prefill)
        params = pair.prefill_leg(cases[number], giver)
        answer = post(receiver.port, cases[number].request(kv_transfer_params=params))
        cases[number].check(answer.tokens)

    pair.forget_prefixes()
    at_once(hand_over, range(len(cases)), workers=4)
    for server in (pair.prefill, pair.decode):
        assert server.metric("vllm:meridian_handoff_tokens_count") == len(cases) / 2
        assert server.metric("vllm:meridian_handoffs_failed_total") == 0
    pair.assert_nothing_held()


def test_any_engine_that_the_gateway_chooses(pair: Pair, oracle: Oracle) -> None:
    cases = oracle.cases[:48]
    for case, answer in zip(cases, at_once(pair.ask, cases, workers=8), strict=True):
        case.check(answer.tokens)
    pair.assert_nothing_held()


def begins(stream: Stream, case: Case, reading: Future[Stream]) -> None:
    """Wait until a tenth of an answer is there."""

    def there() -> bool:
        assert not reading.done(), stream
        return len(stream.tokens) >= len(case.answer) // 10

    until("an answer begins", there, 20, said=lambda: stream)


def test_a_running_answer_moves_with_its_cache(pair: Pair, oracle: Oracle) -> None:
    """It is asked to leave in its middle, and each of its tokens comes once."""
    for case in oracle.long_answers[:2]:
        stream = Stream()
        with ThreadPoolExecutor(1) as client:
            reading = client.submit(stream.read, pair.port, case.request())
            begins(stream, case, reading)
            taken = pair.handed_over() + pair.prefill.metric("vllm:meridian_handoff_tokens_sum")
            asked = pair.move_the_only_one()
            reading.result()
        assert stream.complete, stream
        case.check(stream.tokens)
        move = pair.moves_of(asked)
        assert len(move) == 1 and move[0]["from"] != move[0]["to"] and move[0]["gap_ms"] > 0, move
        moved = pair.handed_over() + pair.prefill.metric("vllm:meridian_handoff_tokens_sum") - taken
        assert moved > 0, "it was computed again"
    pair.assert_nothing_held()


def test_an_answer_goes_on_at_the_other_when_its_server_dies(pair: Pair, oracle: Oracle) -> None:
    """The last test of the module: a server is gone after it."""
    case, stream = oracle.long_answers[0], Stream()
    with ThreadPoolExecutor(1) as client:
        reading = client.submit(stream.read, pair.port, case.request())
        begins(stream, case, reading)
        decodes = re.search(r"decode=(\w+)", stream.placement)
        assert decodes, stream.placement
        {"prefill": pair.prefill, "decode": pair.decode}[decodes[1]].kill()
        assert len(stream.tokens) < len(case.answer), "it was over before"
        reading.result()
    assert stream.complete, stream
    case.check(stream.tokens)
