"""`meridian bench vllm` and `bench cache` on real servers: that they measure, not how fast."""

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


def test_what_a_stored_prefix_is_worth(meridian_binary: Path) -> None:
    require_vllm()
    done = subprocess.run(
        [
            *(str(meridian_binary), "bench", "cache", "--part", "vllm", "--venv", str(HOME)),
            *("--rounds", "1", "--json", "-"),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        timeout=900,  # six servers, one after the other
    )
    assert done.returncode == 0, done.stderr[-4000:]
    measured = json.loads(done.stdout)["vllm"]
    rows = {(row["connector"], row["tokens"]): row for row in measured["rows"]}
    assert set(rows) == {(c, n) for c in ("example", "meridian") for n in (128, 512, 900)}
    assert rows["meridian", 900]["lost"] < measured["requests"], "nothing was found"
    assert [row["beside"] for row in measured["steps"]] == ["plain", "meridian-off"]
    assert all(row["step_ms"] > 0 for row in measured["steps"])
