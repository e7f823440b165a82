"""Blocks of 32 tokens against 64: what is inside a block of a CPU is vLLM's own, and is not cut anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from api_client import at_once
from oracle import Oracle, oracle
from pairs import Pair, Side, running_pair, told

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("told")]
__all__ = ["oracle", "told"]


@pytest.fixture(scope="module")
def pair(oracle: Oracle, meridian_binary: Path) -> Iterator[Pair]:
    with running_pair(meridian_binary, oracle.model, Side(), Side(block=64)) as running:
        yield running


def test_refused_with_the_reason_and_computed(pair: Pair, oracle: Oracle) -> None:
    pair.forget_prefixes()
    cases = oracle.cases[:40]
    for case, answer in zip(cases, at_once(pair.ask, cases), strict=True):
        case.check(answer.tokens)
    assert pair.handed_over() == 0
    said = [line for line in pair.decode.log_text().splitlines() if "a prompt's cache did not come" in line]
    assert any("32" in line and "64" in line for line in said), (
        f"the log does not say what does not fit: {said}"
    )
    pair.assert_nothing_held()
