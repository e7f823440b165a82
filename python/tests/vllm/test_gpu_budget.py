"""BudgetLogits on a GPU: vLLM's newer model runner, and asynchronous scheduling. Run by make test-gpu."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_model
from budget_checks import OURS, check_caps, check_refused, running
from gpu_servers import GPUServer, require_vllm_on_gpu, vllm_environment, vllm_version
from servers import Server

pytestmark = pytest.mark.real


RUNNERS = ["older"] if (vllm_version() or (1,)) < (0, 32) else ["newer", "older"]
"""Before 0.32, vLLM's newer model runner took no processors."""


@pytest.fixture(scope="module", params=RUNNERS)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for each of vLLM's model runners, both with asynchronous scheduling."""
    require_vllm_on_gpu()
    runner = pytest.MonkeyPatch()
    runner.setenv("VLLM_USE_V2_MODEL_RUNNER", "1" if request.param == "newer" else "0")
    try:
        with running(GPUServer, tmp_path_factory.mktemp("budget"), tiny_model.FOR_GPU) as started:
            yield started
    finally:
        runner.undo()


def test_the_end_stands_where_vllm_itself_puts_it(server: Server) -> None:
    check_caps(server, workers=8, same=False)
    log = server.log_text()
    assert "thoughts end after" in log and "is at fault" not in log and "does not tell" not in log


def test_what_no_request_can_mean_is_an_error_of_the_client(server: Server) -> None:
    check_refused(server, OURS, -1)


def test_on_batches_that_the_test_plays() -> None:
    """On the GPU, where what the class asks for comes later."""
    require_vllm_on_gpu()
    tests = Path(__file__).with_name("budget_unit.py")
    plain = f"-m pytest -q -c {os.devnull} --rootdir {tests.parent} -p no:cacheprovider"
    done = subprocess.run(
        [sys.executable, *plain.split(), str(tests)],
        env=vllm_environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-4000:]


def test_what_it_costs() -> None:
    """Prints the table; every entropy is there, and nothing failed."""
    require_vllm_on_gpu()
    import budget_cost
    import torch

    budget_cost.main(torch.device("cuda"))
