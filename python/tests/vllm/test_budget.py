"""Thoughts of a real vLLM end at the token that was asked for, as by its own `thinking_token_budget`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tiny_model
from budget_checks import OURS, check_caps, check_preempted, check_refused, running
from installed import require_vllm, run_unit
from servers import Server

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    require_vllm()
    few = ("--num-gpu-blocks-override", "34")  # one prompt of 1024 tokens fits, eight that think do not
    with running(Server, tmp_path_factory.mktemp("budget"), tiny_model.FOR_CPU, *few) as started:
        yield started


def test_the_end_stands_where_vllm_itself_puts_it(server: Server) -> None:
    check_caps(server, workers=8, same=True)


def test_after_a_preemption(server: Server) -> None:
    check_preempted(server)


@pytest.mark.parametrize(
    "wrong", [-1, 1 << 31, 1 << 62, 1.5, "3", [3], ["x" * 5000]], ids=lambda value: str(value)[:20]
)
def test_what_no_request_can_mean_is_an_error_of_the_client(server: Server, wrong: object) -> None:
    check_refused(server, OURS, wrong)


@pytest.mark.parametrize("name", ["meridian_sequence", "meridian_max_thnik_tokens"])
def test_a_client_cannot_speak_for_the_scheduler(server: Server, name: str) -> None:
    check_refused(server, name, 1)


def test_on_batches_that_the_test_plays() -> None:
    """budget_unit.py needs torch, which vLLM's environment has."""
    run_unit("budget_unit.py")
