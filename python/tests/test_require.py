"""A test that lacks a component is skipped by name, and fails where it is required."""

from __future__ import annotations

import pytest
from conftest import require


def test_a_missing_component_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERIDIAN_REQUIRE", "cc,meridian-accel")
    with pytest.raises(pytest.skip.Exception, match=r"^needs meridian: run make build$"):
        require("meridian", "run make build")


def test_a_required_component_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MERIDIAN_REQUIRE", "cc, meridian")
    with pytest.raises(pytest.fail.Exception, match=r"^needs meridian: run make build$"):
        require("meridian", "run make build")


def test_a_component_that_could_not_be_demanded_fails() -> None:
    with pytest.raises(AssertionError, match="does not list lunch"):
        require("lunch", "it is noon")
