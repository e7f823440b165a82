"""Weights that change while servers run: what one computed before or after goes to no other by mistake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_model
from api_client import at_once, post
from installed import run_unit
from oracle import Case, Oracle, oracle
from pairs import Pair, Side, found, running_pair, told, until_kept
from servers import Server

pytestmark = pytest.mark.real
__all__ = ["oracle", "told"]


@pytest.fixture(scope="module")
def pair(oracle: Oracle, meridian_binary: Path) -> Iterator[Pair]:
    both = Side(role="kv_both")
    with running_pair(meridian_binary, oracle.model, both, both, store_bytes=512 << 20) as running:
        yield running


def answers(server: Server, cases: list[Case], salt: str) -> list[tuple[int, ...]]:
    """Ask them all; prompts of another salt may begin alike, and are found apart."""

    def answer(case: Case) -> tuple[int, ...]:
        return tuple(post(server.port, case.request(cache_salt=salt)).tokens)

    return at_once(answer, cases, workers=8)


def tell(server: Server, path: str, **body: object) -> None:
    answer = post(server.port, body, path)
    assert answer.status == 200, answer


def change(server: Server, model: Path) -> None:
    tell(server, "/collective_rpc", method="reload_weights", kwargs={"weights_path": str(model)})


@pytest.mark.usefixtures("told")
def test_servers_share_what_is_of_the_same_weights(pair: Pair, oracle: Oracle, tmp_path: Path) -> None:
    cases = oracle.long(300)[:8]
    right = [case.answer for case in cases]
    one, other = pair.prefill, pair.decode
    assert answers(one, cases, "before") == right
    until_kept(one, len(cases))

    tiny_model.write(tmp_path / "other", seed=1)
    change(one, tmp_path / "other")
    changed = answers(one, cases, "between")
    assert changed != right, "the weights are others"
    pair.assert_nothing_held()
    tell(one, "/reset_prefix_cache")
    before = found(one)
    assert answers(one, cases, "before") == answers(one, cases, "after") == changed
    assert found(one) == before, "it takes what was computed with other weights"
    pair.assert_nothing_held()

    before = found(other)
    assert answers(other, cases, "between") == answers(other, cases, "after") == right
    assert found(other) == before, "it takes what was computed with other weights"
    assert answers(other, cases, "before") == right
    assert found(other) > before, "what is of its own weights it takes"

    pair.assert_nothing_held()
    tell(other, "/reset_prefix_cache")
    change(other, tmp_path / "other")
    tell(one, "/reset_prefix_cache")
    for server in (one, other):
        tell(server, "/update_weight_version", new_version="other")
    assert answers(one, cases, "named") == changed
    pair.assert_nothing_held()
    before = found(other)
    assert answers(other, cases, "named") == changed
    assert found(other) - before > 0.5 * sum(len(case.prompt) for case in cases)


def test_the_engine_and_its_scheduler(tmp_path: Path) -> None:
    """On vLLM's own, of which weights_unit.py plays the workers and the agent."""
    tiny_model.write(tmp_path / "tiny", size=tiny_model.FOR_CPU)
    run_unit("weights_unit.py", UNIT_MODEL=str(tmp_path / "tiny"))
