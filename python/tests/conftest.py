"""What the tests share: the corpus, and components that may be missing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import pytest

ROOT = Path(__file__).parents[2]
TESTDATA = ROOT / "testdata"
COMPONENTS = ROOT / "internal" / "require" / "components.txt"


def require(component: str, reason: str) -> NoReturn:
    """Skip a test for lack of a component, or fail it where MERIDIAN_REQUIRE names the component."""
    message = f"needs {component}: {reason}"
    assert f"\n{component}: " in "\n" + COMPONENTS.read_text(), f"{COMPONENTS} does not list {component}"
    if component in os.environ.get("MERIDIAN_REQUIRE", "").replace(",", " ").split():
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(scope="session")
def meridian_binary() -> Path:
    """The Go program, to be held against this package."""
    binary = Path(os.environ.get("MERIDIAN_BIN") or ROOT / "bin" / "meridian")
    if not binary.is_file():
        require("meridian", "run make build")
    return binary


@pytest.fixture(autouse=True)
def no_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep settings of the machine that runs the tests out of them."""
    for name in list(os.environ):
        if name.startswith("MERIDIAN_") and name not in ("MERIDIAN_BIN", "MERIDIAN_REQUIRE"):
            monkeypatch.delenv(name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that run vLLM servers by where they are."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent / "vllm"):
            item.add_marker(pytest.mark.vllm)
