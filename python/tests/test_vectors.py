"""The vectors in testdata/mrdn are what their generator makes of docs/wire.md."""

from __future__ import annotations

import runpy

from conftest import TESTDATA


def test_the_generator_makes_the_vectors() -> None:
    made = runpy.run_path(str(TESTDATA / "mrdn" / "generate.py"))
    for name in ("golden", "bad"):
        assert (TESTDATA / "mrdn" / f"{name}.txt").read_text() == made[name](), name
