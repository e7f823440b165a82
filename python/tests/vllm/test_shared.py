"""Two servers without a gateway, whose prompts begin with what the other has computed before."""

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
from waiting import until

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("told")]
__all__ = ["oracle", "told"]

STORE = 512 << 20
BLOCK = 32


@pytest.fixture(scope="module")
def pair(oracle: Oracle, meridian_binary: Path) -> Iterator[Pair]:
    both = Side(role="kv_both", block=BLOCK)
    with running_pair(meridian_binary, oracle.model, both, both, store_bytes=STORE) as running:
        yield running


def ask_all(server: Server, cases: list[Case], **more: object) -> None:
    answers = at_once(lambda case: post(server.port, case.request(**more)), cases, workers=8)
    for case, answer in zip(cases, answers, strict=True):
        case.check(answer.tokens)


def test_a_prompt_is_computed_once(pair: Pair, oracle: Oracle) -> None:
    cases = oracle.long(100)[:24]
    before = found(pair.decode)
    ask_all(pair.prefill, cases)
    until_kept(pair.prefill, len(cases))
    pair.assert_nothing_held()
    ask_all(pair.decode, cases)
    least = sum((len(case.prompt) - 1) // BLOCK * BLOCK for case in cases)
    assert found(pair.decode) - before >= least / 2, "prompts were computed that the other had computed"
    assert pair.failed() == 0
    pair.assert_nothing_held()


def test_a_tenant_finds_nothing_of_another(pair: Pair, oracle: Oracle) -> None:
    cases = oracle.long(300)[-8:]
    ask_all(pair.prefill, cases, cache_salt="one")
    pair.assert_nothing_held()
    before = found(pair.decode)
    ask_all(pair.decode, cases, cache_salt="another")
    assert found(pair.decode) == before
    ask_all(pair.decode, cases, cache_salt="one")
    assert found(pair.decode) > before


def test_what_a_server_computed_outlives_it(pair: Pair, oracle: Oracle) -> None:
    """The last test of the module: a server is gone after it."""
    pair.forget_prefixes()
    ask_all(pair.prefill, list(oracle.cases))
    pair.assert_nothing_held()
    pair.prefill.kill()
    before, computed = found(pair.decode), pair.computed()
    ask_all(pair.decode, list(oracle.cases))
    tokens = sum(len(case.prompt) for case in oracle.cases)
    assert found(pair.decode) - before > 0.5 * tokens, f"of {tokens} tokens"
    assert pair.computed() - computed < 0.5 * tokens
    until("no block is held", lambda: pair.decode.metric("vllm:kv_cache_usage_perc") == 0, 20)


def test_loads_beside_a_step_under_way(tmp_path: Path) -> None:
    """On vLLM's own scheduler and connector, of which loads_unit.py plays the workers and the agent."""
    tiny_model.write(tmp_path / "tiny", size=tiny_model.FOR_CPU)
    run_unit("loads_unit.py", UNIT_MODEL=str(tmp_path / "tiny"))
