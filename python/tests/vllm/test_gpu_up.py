"""`meridian up --engine vllm` on a GPU, and what a hand-off adds to the first token there."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu_first_token import FLAGS, LENGTHS, ROUNDS, compare_first_tokens, get, ready, write_model
from gpu_servers import VLLM, require_vllm_on_gpu, vllm_environment
from servers import free_port
from waiting import until

pytestmark = pytest.mark.real

PATIENCE = 180.0


def write_environment(directory: Path) -> None:
    """Make what looks as a virtual environment with this Python's vLLM."""
    directory.joinpath("bin").mkdir(parents=True)
    programs = {
        "python": f'#!/bin/sh\nexec {VLLM[0]} "$@"\n',
        "vllm": 'from vllm.entrypoints.cli.main import main\n\nif __name__ == "__main__":\n    main()\n',
    }
    for name, text in programs.items():
        program = directory / "bin" / name
        program.write_text(text)
        program.chmod(0o755)


@pytest.fixture
def cell(tmp_path: Path, meridian_binary: Path) -> Iterator[tuple[int, int]]:
    """Run a cell; return the ports of its gateway and of its prefill server."""
    require_vllm_on_gpu()
    write_model(tmp_path / "model")
    write_environment(tmp_path / "venv")
    state = tempfile.mkdtemp(prefix="up-")  # sockets must not have long paths
    port, admin, log = free_port(), free_port(), tmp_path / "up.log"
    with log.open("w") as output:
        up = subprocess.Popen(
            [
                *(str(meridian_binary), "up", "--engine", "vllm", "--venv", str(tmp_path / "venv")),
                *("--model", str(tmp_path / "model"), "--state", state),
                *("--listen", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{admin}", f"--vllm-args={FLAGS}"),
                *("--prefill", "block=16", "--decode", "block=16"),
            ],
            env=vllm_environment(),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:

        def serves() -> bool:
            assert up.poll() is None, log.read_text()[-4000:]
            return ready(port)

        until("the cell is ready", serves, PATIENCE, said=lambda: log.read_text()[-4000:])
        servers = {engine["id"]: engine["url"] for engine in get(admin, "/debug/engines")["engines"]}
        yield port, int(servers["prefill-0"].rpartition(":")[2])
    finally:
        up.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            up.wait(60)
        up.kill()
        for part in sorted(Path(state).rglob("*.log")):
            print(f"==> {part.name}", *part.read_text(errors="replace").splitlines()[-15:], sep="\n")
        shutil.rmtree(state, ignore_errors=True)


def test_what_a_hand_off_adds(cell: tuple[int, int]) -> None:
    gateway, alone = cell
    compare_first_tokens(alone, gateway, "prefill-0", "meridian")
    moved = os.linesep.join(
        line for line in get(alone, "/metrics").splitlines() if line.startswith("vllm:meridian_offers_total")
    )
    assert float(moved.rpartition(" ")[2]) >= len(LENGTHS) * ROUNDS, moved
