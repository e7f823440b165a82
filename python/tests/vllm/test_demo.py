"""`meridian up --engine vllm --demo`: a pair of servers answers as one server alone does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import tiny_model
from conftest import ROOT
from installed import HOME, require_vllm

pytestmark = pytest.mark.real


def test_the_pair_answers_as_one_server(tmp_path: Path, meridian_binary: Path) -> None:
    require_vllm()
    model = tmp_path / "model"
    tiny_model.write(model)
    state = tempfile.mkdtemp(prefix="demo-")  # sockets must not have long paths
    try:
        done = subprocess.run(
            [
                *(str(meridian_binary), "up", "--engine", "vllm", "--venv", str(HOME), "--model", str(model)),
                *("--state", state, "--demo"),
                "--vllm-args=--dtype float32 --enforce-eager --max-model-len 1024",
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
            capture_output=True,
            text=True,
            timeout=400,
        )
    finally:
        shutil.rmtree(state, ignore_errors=True)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-6000:]
    assert re.search(r"^parity: equal \(\d+ prompts, \d+ tokens\)$", done.stdout, re.MULTILINE), said[-6000:]
