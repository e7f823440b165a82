"""vLLM servers whose caches lie on a GPU."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from conftest import ROOT, require
from servers import Running, Server


def require_vllm_on_gpu() -> None:
    """Skip the test where the Python that runs it has no vLLM, or the machine no GPU."""
    if vllm_version() is None:
        require("vllm-gpu", "run the tests with a Python that has vLLM")
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        require("vllm-gpu", str(error))
    if (result := driver.cuInit(0)) != 0:
        require("vllm-gpu", f"CUDA's driver finds no GPU: {result}")


def vllm_version() -> tuple[int, ...] | None:
    try:
        return tuple(int(part) for part in importlib.metadata.version("vllm").split(".")[:2])
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None


VLLM = (sys.executable, "-m", "vllm.entrypoints.cli.main")


def vllm_environment() -> dict[str, str]:
    """Return what vLLM's processes are started with; without bytecode they would start slowly."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    path = os.pathsep.join(filter(None, (str(ROOT / "python"), os.environ.get("PYTHONPATH", ""))))
    return {
        **kept,
        **{"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_SERVER_DEV_MODE": "1"},
        "PYTHONPATH": path,
    }


class Spawned:
    """A process of its own session."""

    def __init__(self, argv: Sequence[str], log: Path, environment: dict[str, str]) -> None:
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                argv,
                cwd=log.parent,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def running(self) -> bool:
        return self._process.poll() is None

    def wait(self, seconds: float) -> bool:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return not self.running()

    def terminate(self) -> None:
        self._process.terminate()


class GPUServer(Server):
    """A server in vLLM's own layout, with asynchronous scheduling and CUDA graphs, as vLLM runs by itself.

    Several start at a time and share a GPU, so the size of each cache is said instead of measured.
    """

    FLAGS: ClassVar[tuple[str, ...]] = (
        *("--dtype", "bfloat16", "--max-model-len", "2048", "--max-num-seqs", "16"),
        *("--kv-cache-memory-bytes", "2G", "--gpu-memory-utilization", "0.05"),
        *("--enable-prefix-caching", "--generation-config", "vllm", "--disable-uvicorn-access-log"),
        *("-cc.mode=0", "-cc.cudagraph_mode=FULL_DECODE_ONLY", "-cc.cudagraph_capture_sizes=[1,2,4,8,16]"),
    )
    LAYOUT: ClassVar[str] = ""

    def _run(self, arguments: Sequence[str], log: Path) -> Running:
        environment = vllm_environment()
        if self.LAYOUT:
            environment["VLLM_KV_CACHE_LAYOUT"] = self.LAYOUT
        return Spawned([*VLLM, *arguments], log, environment)


class OtherLayout(GPUServer):
    """A server in another layout than vLLM's own: blocks or heads first."""

    LAYOUT = "BLHNC" if (vllm_version() or (0,)) >= (0, 32) else "HND"
