"""A prefill server that computes prompts in chunks, each of which moves while the next is computed."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_model
from installed import run_unit

pytestmark = pytest.mark.real


def test_with_made_up_outputs(tmp_path: Path) -> None:
    """On vLLM's own scheduler and connector, of which chunks_unit.py plays the workers and the agent."""
    tiny_model.write(tmp_path / "tiny", size=tiny_model.FOR_CPU)
    run_unit("chunks_unit.py", UNIT_MODEL=str(tmp_path / "tiny"))
