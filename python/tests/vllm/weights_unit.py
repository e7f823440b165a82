"""Weights that change while a server runs, on vLLM's own engine and scheduler.

It needs vLLM: test_weights.py runs it. The test plays the workers and the agent. UNIT_MODEL is a
model's directory; only its configuration is read.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from loads_unit import PROMPT, Server
from vllm.v1.engine.core import EngineCore
from vllm.v1.outputs import KVConnectorOutput

from meridian.door import Event, EventKind


class Executor:
    """vLLM's workers, which do what they are asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def collective_rpc(self, method: Any, *_: Any) -> list[Any]:
        self.asked.append(method)
        return []


class Engine(Server):
    """A server, and the part of vLLM that changes its weights."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch, "kv_both", None, asynchronous=False)
        self.core: Any = EngineCore.__new__(EngineCore)
        self.core.scheduler, self.core.model_executor = self.scheduler, Executor()

    def kept(self) -> str | None:
        """Run a request to its end; return the revision under which it is kept, if it is."""
        before = len(self.agent.keeps)
        self.add(f"r{len(self.said)}", PROMPT, answer=1).skip_reading_prefix_cache = True
        self.run()
        if len(self.agent.keeps) == before:
            return None
        keep, asked = self.agent.keeps[-1]
        asked.set_result(None)
        connector = self.scheduler.connector._scheduler
        connector.happened(Event(EventKind.FREED, keep.transfer, False))
        self.scheduler._update_from_kv_xfer_finished(KVConnectorOutput(finished_sending={keep.request_id}))
        connector.step()
        assert connector.holds == 0
        return str(keep.scope.revision)

    def run(self) -> None:
        """Compute what there is."""
        while self.scheduler.has_unfinished_requests():
            self.plan()
            self.land()


def test_a_change_in_a_pause_makes_a_fresh_name(monkeypatch: pytest.MonkeyPatch) -> None:
    w = Engine(monkeypatch)
    assert w.kept() == ""
    w.core.collective_rpc("compute_weight_checksums")
    assert w.kept() == ""
    assert w.core.reset_prefix_cache()
    w.core.collective_rpc("update_weights")
    first = w.kept()
    assert first and "#" in first
    assert w.core.reset_prefix_cache()
    w.core.collective_rpc("update_weights")
    second = w.kept()
    assert second and "#" in second and second != first
    assert w.core.model_executor.asked == ["compute_weight_checksums", "update_weights", "update_weights"]


def test_what_vllm_had_is_not_kept_for_other_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    w = Engine(monkeypatch)
    assert w.kept() == ""
    w.core.collective_rpc("reload_weights")  # vLLM finds its old blocks
    assert w.kept() is None
    w.core.set_weight_version("2")
    assert w.kept() is None, "the blocks are still there"
    assert w.core.reset_prefix_cache()
    named = w.kept()
    assert named and "@" in named


def test_a_request_that_was_running_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    w = Engine(monkeypatch)
    running = w.add("running", PROMPT, answer=3)
    running.skip_reading_prefix_cache = True
    assert w.plan() == ["running"]
    w.land()
    w.core.collective_rpc(SimpleNamespace(__name__="load"))
    w.run()
    assert running.is_finished() and not w.agent.keeps


def test_vllm_resets_the_connectors_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    w = Engine(monkeypatch)
    assert w.kept() == ""
    assert w.core.reset_prefix_cache(reset_running_requests=True, reset_connector=True)
    kept = w.kept()
    assert kept and "#" in kept
