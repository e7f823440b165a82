"""The governed scheduler on a GPU, where vLLM schedules asynchronously. Run by make test-gpu."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_model
from governed_checks import check_governed, running
from gpu_servers import GPUServer, require_vllm_on_gpu

pytestmark = pytest.mark.real


def test_order_and_pauses_follow_the_governor_and_requests_run_without_it(tmp_path: Path) -> None:
    require_vllm_on_gpu()
    with running(GPUServer, tmp_path, tiny_model.FOR_GPU) as (server, door):
        governor = check_governed(server, door, same=False)
        log = server.log_text()
    print(f"{governor.early} of {len(governor.measured)} entropies came before their tokens")
    assert "scheduling is asynchronous" in log and "is at fault" not in log, log[-3000:]
