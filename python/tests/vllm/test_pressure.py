"""Servers whose caches are too small for what is asked of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from api_client import at_once
from oracle import Oracle, oracle
from pairs import Pair, Side, running_pair, told

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("told")]
__all__ = ["oracle", "told"]

PREFILL_BLOCKS, DECODE_BLOCKS = 64, 48
"""The longest prompt takes 29; eight of the long answers take 80."""


@pytest.fixture(scope="module")
def pair(oracle: Oracle, meridian_binary: Path) -> Iterator[Pair]:
    prefill = Side(("--num-gpu-blocks-override", str(PREFILL_BLOCKS), "--max-num-batched-tokens", "128"))
    decode = Side(("--num-gpu-blocks-override", str(DECODE_BLOCKS)))
    with running_pair(meridian_binary, oracle.model, prefill, decode) as running:
        yield running


def test_preemption(pair: Pair, oracle: Oracle) -> None:
    """Requests that lose their blocks to others begin anew, and end with the same tokens."""
    before = pair.decode.metric("vllm:num_preemptions_total")
    for case, answer in zip(oracle.long_answers, at_once(pair.ask, oracle.long_answers), strict=True):
        case.check(answer.tokens)
    assert pair.decode.metric("vllm:num_preemptions_total") > before, "no request lost its blocks"
    assert pair.handed_over() > 0
    pair.assert_nothing_held()


def test_offers_wait_for_their_turn(pair: Pair, oracle: Oracle) -> None:
    """Kept blocks and running requests do not lock each other out."""
    cases = oracle.long(400)[:48]
    for case, answer in zip(cases, at_once(pair.ask, cases, workers=24), strict=True):
        case.check(answer.tokens)
    pair.assert_nothing_held()
