"""Thoughts of a real vLLM end at the token that was asked for, as by its own `thinking_token_budget`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_model
from budget_checks import END, OURS, START, check_caps, check_preempted, check_refused, check_told, running
from installed import require_vllm, run_unit
from processes import Process
from servers import Server, free_port

pytestmark = pytest.mark.real

TABLE = f"""
[model.tiny]
think_start_token_ids = [{START}]
think_end_token_ids = [{END}]
think_start_texts = ["<think>"]
think_end_texts = ["</think>"]
think_limit = "vllm_xargs"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    require_vllm()
    home = tmp_path_factory.mktemp("budget")
    few = ("--num-gpu-blocks-override", "34")  # one prompt of 1024 tokens fits, eight that think do not
    with running(Server, home, tiny_model.FOR_CPU, *few, transfer=without_agent(home)) as started:
        yield started


def without_agent(home: Path) -> dict[str, object]:
    """Meridian's connector, whose agent never comes: it serves all the same."""
    return {
        "kv_connector": "Connector",
        "kv_connector_module_path": "meridian.vllm",
        "kv_role": "kv_both",
        "engine_id": "budget",
        "kv_connector_extra_config": {"socket": str(home / "door.sock")},
    }


@pytest.fixture(scope="module")
def gateway(server: Server, meridian_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A gateway before it, by its port."""
    home, port = tmp_path_factory.mktemp("gateway"), free_port()
    (home / "meridian.toml").write_text(TABLE)
    process = Process(
        meridian_binary,
        home / "log",
        *("gateway", "--config", str(home / "meridian.toml"), "--state", str(home)),
        *("--listen", f"127.0.0.1:{port}", "--both", server.url),
    )
    yield port
    process.stop()


def test_the_end_stands_where_vllm_itself_puts_it(server: Server) -> None:
    check_caps(server, workers=8, same=True)


def test_a_gateway_hears_that_a_thought_was_ended(server: Server, gateway: int) -> None:
    check_told(server, gateway)


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
