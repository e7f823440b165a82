"""A real vLLM whose order and pauses an agent's governor chooses, and which goes on without it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import tiny_model
from conftest import ROOT
from governed_checks import check_governed, running
from installed import HOME, require_vllm, vllm_environment
from servers import Server

pytestmark = pytest.mark.real


def test_order_and_pauses_follow_the_governor_and_nobody_misses_it(tmp_path: Path) -> None:
    require_vllm()
    with running(Server, tmp_path, tiny_model.FOR_CPU) as (server, door):
        governor = check_governed(server, door, same=True)
    # Two sockets and two threads of the test lie between; without them all come before their tokens.
    assert governor.early > len(governor.measured) / 2, f"{governor.early} of {len(governor.measured)}"


def test_with_made_up_outputs(tmp_path: Path) -> None:
    """governed_unit.py needs vLLM, whose environment has no door of the agent's."""
    require_vllm()
    tests = Path(__file__).with_name("governed_unit.py")
    tiny_model.write(tmp_path / "tiny", size=tiny_model.FOR_CPU)
    plain = f"-m pytest -q -c {os.devnull} --rootdir {tests.parent} -p no:cacheprovider -p no:asyncio"
    done = subprocess.run(
        [str(HOME / "bin" / "python"), *plain.split(), str(tests)],
        env={**vllm_environment(), "UNIT_MODEL": str(tmp_path / "tiny")},
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-4000:]
