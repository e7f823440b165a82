"""A real vLLM whose order and pauses an agent's governor chooses, and which goes on without it."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_model
from governed_checks import check_governed, running
from installed import require_vllm, run_unit
from servers import Server

pytestmark = pytest.mark.real


def test_order_and_pauses_follow_the_governor_and_requests_run_without_it(tmp_path: Path) -> None:
    require_vllm()
    with running(Server, tmp_path, tiny_model.FOR_CPU) as (server, door):
        governor = check_governed(server, door, same=True)
    # Two sockets and two threads of the test lie between; without them all come before their tokens.
    assert governor.early > len(governor.measured) / 2, f"{governor.early} of {len(governor.measured)}"


def test_with_made_up_outputs(tmp_path: Path) -> None:
    """On vLLM's own schedulers, of which governed_unit.py plays the workers."""
    tiny_model.write(tmp_path / "tiny", size=tiny_model.FOR_CPU)
    run_unit("governed_unit.py", UNIT_MODEL=str(tmp_path / "tiny"))
