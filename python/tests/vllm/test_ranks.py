"""A decode server of two ranks takes what a prefill server of one has computed."""

from __future__ import annotations

import dataclasses
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
    # Two ranks that wait for each other on two cores can be slow.
    one = Side(keep=60.0, deadline=30.0)
    two = dataclasses.replace(one, flags=("--tensor-parallel-size", "2"))
    with running_pair(meridian_binary, oracle.model, one, two) as running:
        yield running


def test_one_rank_to_two(pair: Pair, oracle: Oracle) -> None:
    cases = oracle.cases[:40]
    for case, answer in zip(cases, at_once(pair.ask, cases, workers=4), strict=True):
        case.check(answer.tokens)
    assert pair.failed() == 0
    assert pair.handed_over() > sum(len(case.prompt) for case in cases) / 2
    pair.assert_nothing_held()
