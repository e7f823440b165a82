"""The templates that come with vLLM do with thoughts what docs/performance.md says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from conftest import ROOT
from installed import HOME, require_vllm, vllm_environment

pytestmark = pytest.mark.real


def test_the_page_has_what_is_printed() -> None:
    require_vllm()
    done = subprocess.run(
        [str(HOME / "bin" / "python"), str(Path(__file__).with_name("template_turns.py"))],
        env=vllm_environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert len(rows) >= 7, f"{done.stdout}\n{done.stderr}"
    page = (ROOT / "docs" / "performance.md").read_text()
    missing = [row for row in rows if row not in page]
    assert not missing, "\n".join(missing)
