"""A decode server that was told to fail requests whose cache does not come."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from api_client import Stream, at_once, post
from oracle import Oracle, oracle
from pairs import KEEP, Pair, Side, running_pair, told

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("told")]
__all__ = ["oracle", "told"]


@pytest.fixture(scope="module")
def pair(oracle: Oracle, meridian_binary: Path) -> Iterator[Pair]:
    with running_pair(meridian_binary, oracle.model, Side(), Side(policy="fail")) as running:
        yield running


def test_a_changed_byte_is_an_error_and_no_text(pair: Pair, oracle: Oracle) -> None:
    case = oracle.long(500)[0]
    pair.forget_prefixes()
    params = pair.prefill_leg(case)
    with pair.cell.changed_bytes():
        answer = post(pair.decode.port, case.request(kv_transfer_params=params))
    assert answer.status == 500, answer
    assert "choices" not in answer.body
    pair.assert_nothing_held(KEEP / 2)  # the request that failed gives its ticket back
    case.check(pair.ask(case).tokens)  # the next request is served as ever


def test_the_gateway_asks_again(pair: Pair, oracle: Oracle) -> None:
    """Its client hears nothing of the error."""
    case = oracle.long(500)[1]
    pair.forget_prefixes()
    failed = pair.failed()
    with ThreadPoolExecutor(1) as client:
        asked = client.submit(pair.ask, case)
        with pair.cell.changed_bytes():
            pair.until_failed(failed + 1)
        case.check(asked.result().tokens)
    pair.assert_nothing_held(KEEP / 2)


def test_blocks_are_kept_until_they_are_fetched(pair: Pair, oracle: Oracle) -> None:
    case = oracle.long(500)[2]
    pair.forget_prefixes()
    params = pair.prefill_leg(case)
    time.sleep(1)
    assert pair.prefill.metric("vllm:kv_cache_usage_perc") > 0, "the offered blocks were freed at once"
    fetched = time.monotonic()
    answer = post(pair.decode.port, case.request(kv_transfer_params=params))
    case.check(answer.tokens)
    pair.assert_nothing_held()
    assert time.monotonic() - fetched < KEEP / 2, "the blocks waited for a deadline, not for the fetch"


def test_blocks_that_are_not_fetched_are_freed(pair: Pair, oracle: Oracle) -> None:
    cases = oracle.long(500)[3:6]
    pair.forget_prefixes()
    offered = time.monotonic()
    tickets = [pair.prefill_leg(case) for case in cases]
    pair.assert_nothing_held()
    assert time.monotonic() - offered > KEEP / 2, "they were not kept for those who come late"
    late = post(pair.decode.port, cases[0].request(kv_transfer_params=tickets[0]))
    assert late.status == 500, "a cache that is no longer there was found"


def test_clients_that_leave_while_the_cache_is_on_its_way(pair: Pair, oracle: Oracle) -> None:
    pair.forget_prefixes()
    cases = oracle.long(300)[:16]
    tickets = [pair.prefill_leg(case) for case in cases]

    def leave(number: int) -> bool:
        request = cases[number].request(kv_transfer_params=tickets[number])
        return Stream().read(pair.decode.port, request, leave_after=0.1 * number).left

    abandoned = pair.abandoned()
    with pair.cell.held_bytes():
        assert all(at_once(leave, range(len(cases)), workers=16)), "a client got an answer without a cache"
    pair.until_abandoned(abandoned + 1)
    pair.assert_nothing_held()
    assert pair.prefill.alive() and pair.decode.alive()
    cases[0].check(pair.ask(cases[0]).tokens)
