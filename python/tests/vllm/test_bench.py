"""`meridian bench vllm` on real servers: that it measures, not how fast."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT
from installed import HOME, require_vllm

pytestmark = pytest.mark.real


def test_what_a_hand_off_adds(meridian_binary: Path) -> None:
    require_vllm()
    done = subprocess.run(
        [
            *(str(meridian_binary), "bench", "vllm", "--venv", str(HOME), "--peers", "none", "--json", "-"),
            *("--tokens", "96", "--requests", "3", "--rounds", "1"),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    alone, ours = json.loads(done.stdout)["rows"]
    assert (alone["route"], ours["route"]) == ("alone", "meridian")
    assert ours["different"] == 0 and ours["bytes"] > 0 and ours["added_p50_ms"] > 0
