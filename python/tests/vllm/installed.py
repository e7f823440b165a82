"""The vLLM that tests run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from conftest import ROOT, require

HOME = Path(os.environ.get("MERIDIAN_VLLM") or ROOT / ".peers" / "vllm").absolute()
"""The virtual environment that has vLLM: MERIDIAN_VLLM, else what make vllm made."""

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "1",  # for POST /reset_prefix_cache
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT / "python"),
}


def require_vllm() -> None:
    """Skip the test where there is no vLLM."""
    if not (HOME / "bin" / "vllm").exists():
        require("vllm", "to have it: make vllm")


def vllm_environment() -> dict[str, str]:
    """Return what vLLM's processes are started with; without bytecode they would start slowly."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **ENVIRONMENT}


def run_unit(name: str, **environment: str) -> None:
    """Run a file of tests beside this one with the Python that has vLLM, and torch with it."""
    require_vllm()
    tests = Path(__file__).with_name(name)
    plain = f"-m pytest -q -c {os.devnull} --rootdir {tests.parent} -p no:cacheprovider -p no:asyncio"
    done = subprocess.run(
        [str(HOME / "bin" / "python"), *plain.split(), str(tests)],
        env={**vllm_environment(), "PYTHONPATH": f"{ROOT / 'python'}:{tests.parent.parent}", **environment},
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-4000:]
