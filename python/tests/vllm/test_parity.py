"""Two vLLM servers give exactly the tokens that one gives alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from api_client import Stream, at_once, post
from oracle import Case, Oracle, oracle
from pairs import KEEP, Pair, Side, running_pair, told
from servers import BLOCK

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("told")]
__all__ = ["oracle", "told"]

CHUNK = 256
"""Tokens that the prefill server computes in one step: longer prompts are computed in pieces."""


@pytest.fixture(scope="module", params=["pull", "push"])
def pair(request: pytest.FixtureRequest, oracle: Oracle, meridian_binary: Path) -> Iterator[Pair]:
    mode: str = request.param
    prefill = Side(("--max-num-batched-tokens", str(CHUNK)), mode=mode)
    with running_pair(meridian_binary, oracle.model, prefill, Side(mode=mode)) as running:
        running.until_handed_over(oracle)  # the agents have met, and every prompt can be handed over
        yield running


def complaints(pair: Pair, cases: list[Case]) -> list[str]:
    """Ask for all cases at a time, and return what is not as it should be."""

    def ask(case: Case) -> str:
        answer = pair.ask(case)
        if answer.status != 200:
            return f"{len(case.prompt)} tokens: {answer.status} {answer.body}"
        if tuple(answer.tokens) != case.answer:
            return f"{len(case.prompt)} tokens: the wrong ones, {answer.tokens}, not {list(case.answer)}"
        return ""

    return [complaint for complaint in at_once(ask, cases) if complaint]


def test_prompts_of_all_lengths(pair: Pair, oracle: Oracle) -> None:
    """200 prompts, twelve at a time: the same tokens, and they were not computed where they were decoded."""
    pair.forget_prefixes()
    computed, handed_over = pair.computed(), pair.handed_over()
    assert complaints(pair, list(oracle.cases)) == []
    computed, handed_over = pair.computed() - computed, pair.handed_over() - handed_over
    # The last token of a prompt is always computed where it is decoded.
    assert computed <= len(oracle.cases) * 2, f"{computed} tokens were computed by the decode server"
    assert handed_over > sum(len(case.prompt) for case in oracle.cases) / 2
    pair.assert_nothing_held()


def test_streams(pair: Pair, oracle: Oracle) -> None:
    pair.forget_prefixes()
    cases = oracle.cases[:24]
    streams = at_once(lambda case: Stream().read(pair.port, case.request()), cases)
    for case, stream in zip(cases, streams, strict=True):
        assert stream.complete, stream
        case.check(stream.tokens)


def test_caches_move_while_prompts_are_computed(pair: Pair, oracle: Oracle) -> None:
    """The gateway promises them, so that they can be asked for."""
    cases = oracle.long(200)[:4]
    pair.forget_prefixes()
    ahead, handed_over = pair.ahead(), pair.handed_over()
    assert complaints(pair, cases) == []
    pair.until_ahead(ahead + len(cases))
    assert pair.handed_over() - handed_over == sum(len(case.prompt) for case in cases)
    pair.assert_nothing_held()


def test_what_the_decode_server_has_is_not_moved(pair: Pair, oracle: Oracle) -> None:
    """The second time, only what is behind the last whole block comes over."""
    case = max(oracle.cases, key=lambda case: len(case.prompt))
    assert complaints(pair, [case]) == []
    before = pair.handed_over()
    assert complaints(pair, [case]) == []
    assert pair.handed_over() - before < BLOCK
    pair.assert_nothing_held()


def test_a_byte_changed_on_the_way(pair: Pair, oracle: Oracle) -> None:
    """It is noticed, and the bytes come a second time: the tokens are the same."""
    case = oracle.long(600)[0]
    pair.forget_prefixes()
    with pair.cell.changed_bytes(1):
        assert complaints(pair, [case]) == []
    pair.assert_nothing_held()


def test_bytes_changed_at_every_try(pair: Pair, oracle: Oracle) -> None:
    """The control: the cache never enters the decode server, which computes the prompt itself."""
    for case in oracle.long(600)[1:4]:
        pair.forget_prefixes()
        failed, handed_over = pair.failed(), pair.handed_over()
        with pair.cell.changed_bytes():
            assert complaints(pair, [case]) == []
        pair.until_failed(failed + 1)
        assert pair.handed_over() == handed_over
    pair.assert_nothing_held(KEEP / 2)  # the request that failed gives its ticket back


def test_a_ticket_for_another_prompt(pair: Pair, oracle: Oracle) -> None:
    """A ticket that was given for one prompt brings nothing into another one's cache."""
    given, other = oracle.long(400)[:2]
    pair.forget_prefixes()
    params = pair.prefill_leg(given)
    computed = pair.computed()
    answer = post(pair.decode.port, other.request(kv_transfer_params=params))
    other.check(answer.tokens)
    assert pair.computed() - computed == len(other.prompt)
    pair.assert_nothing_held()
