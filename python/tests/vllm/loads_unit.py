"""Prefixes that are loaded beside a step under way, on vLLM's own scheduler.

It needs vLLM: test_shared.py runs it. The test plays the workers and the agent. UNIT_MODEL is a
model's directory; only its configuration is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from governed_unit import BLOCK, World
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.multi_connector import (
    MultiConnector,
    MultiKVConnectorStats,
)
from vllm.v1.engine.core import EngineCore
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import RequestStatus
from vllmworld import FakeDoor, found_ticket

from meridian.door import CacheTerms, Event, EventKind, Find, Found
from meridian.vllm import connector
from meridian.vllm.stats import Stats

TRANSFER = bytes(range(1, 17))
PROMPT = 40
FOUND = 36


class Agent(FakeDoor):
    """An agent whose cell has the beginning of every prompt."""

    def __init__(
        self, *_: object, on_event: Callable[[Event], None], control: Any = None, **__: object
    ) -> None:
        super().__init__(cache=CacheTerms(BLOCK, 0.0))
        self.control = control

    def open(self, *, required: bool = False) -> None: ...
    def publish(self, publication: object) -> None: ...

    def find_soon(self, find: Find) -> Future[Found]:
        answer = super().find_soon(find)
        answer.set_result(Found(FOUND, found_ticket(TRANSFER)))
        return answer


class Server(World):
    """A server that finds prefixes, with room for one prompt and a half, unless told."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        kv_role: str,
        role: str | None,
        asynchronous: bool = True,
        blocks: int = 16,
    ) -> None:
        monkeypatch.setattr(connector, "Door", Agent)
        extra = {"socket": "/nowhere", "cache_always": True, **({"role": role} if role else {})}
        transfer = KVTransferConfig(
            kv_connector="Connector",
            kv_connector_module_path="meridian.vllm",
            kv_role=kv_role,
            engine_id="e",
            kv_load_failure_policy="recompute",
            kv_connector_extra_config=extra,
        )
        super().__init__(monkeypatch, asynchronous, blocks=blocks, governed=False, transfer=transfer)
        self.agent: Agent = self.scheduler.connector._door

    def blocks(self, name: str) -> set[int]:
        return set(self.scheduler.kv_cache_manager.get_block_ids(name)[0])

    def abort_under_way(self) -> set[int]:
        """Abort a request whose step is held open; return the blocks that the step still writes."""
        self.agent.finds.clear()
        request = self.add("aborted", PROMPT)
        request.skip_reading_prefix_cache = True  # computed here, all of it
        assert self.plan() == ["aborted"]
        written = self.blocks("aborted")
        self.scheduler.finish_requests("aborted", RequestStatus.FINISHED_ABORTED)
        return written


def loaded(server: Server) -> set[int]:
    """Return the blocks into which the agent was asked to load."""
    return {block for accept, _ in server.agent.accepts for table in accept.tables for block in table}


@pytest.mark.parametrize(
    ("kv_role", "role"), [("kv_both", "prefill"), ("kv_both", None), ("kv_consumer", None)]
)
def test_no_load_goes_into_blocks_that_a_step_still_writes(
    monkeypatch: pytest.MonkeyPatch, kv_role: str, role: str | None
) -> None:
    w = Server(monkeypatch, kv_role, role)
    written = w.abort_under_way()
    w.add("next", PROMPT)
    for _ in range(3):
        w.plan()
        assert not loaded(w) & written, "the step that is under way would overwrite what is loaded"
    while w.flying:
        w.land()
    w.plan()
    assert loaded(w), "it is loaded when the step has ended"


def test_a_producer_finds_nothing_beside_a_step_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    w = Server(monkeypatch, "kv_producer", None)
    w.abort_under_way()
    w.add("next", PROMPT)
    w.plan()
    assert w.agent.finds == [] and w.agent.accepts == []


def test_a_producer_of_one_step_at_a_time_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    w = Server(monkeypatch, "kv_producer", None, asynchronous=False)
    w.add("first", PROMPT)
    w.plan()
    assert len(w.agent.accepts) == 1


@pytest.mark.parametrize(
    ("kv_role", "role", "told"),
    [("kv_both", "prefill", "prefill"), ("kv_both", "decode", "decode"), ("kv_both", None, "both")],
)
def test_gateways_hear_what_a_server_is_for(
    monkeypatch: pytest.MonkeyPatch, kv_role: str, role: str | None, told: str
) -> None:
    assert Server(monkeypatch, kv_role, role).agent.control.role == told


def test_a_request_goes_on_without_an_agent_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Into the blocks that it had the agent may still write: no request gets them before it has said so."""
    w = Server(monkeypatch, "kv_both", None, asynchronous=False, blocks=100)
    ours, free = w.scheduler.connector._scheduler, w.scheduler.kv_cache_manager.block_pool.get_num_free_blocks
    w.add("r", PROMPT)
    assert w.plan() == []
    in_doubt = loaded(w)
    assert in_doubt
    ours._clock = lambda: time.monotonic() + 60.0
    w.plan()
    assert w.flying[-1].kv_connector_metadata.step.left == ("r",)
    w.scheduler._handle_failed_recving({"r"})
    w.scheduler._update_from_kv_xfer_finished(KVConnectorOutput(finished_recving={"r"}))
    before = free()
    assert w.plan() == ["r"]
    assert not w.blocks("r") & in_doubt and before == 99 - len(in_doubt)
    assert ours.counters.take() == {"failed": 1, "doubtful_blocks": len(in_doubt)}
    finds = len(w.agent.finds)
    w.add("next", PROMPT)
    assert w.plan() == ["next"] and len(w.agent.finds) == finds, "of an agent that hangs nothing is asked"
    for name in ("r", "next"):
        w.scheduler.finish_requests(name, RequestStatus.FINISHED_ABORTED)
    while w.flying:
        w.land()
    core: Any = EngineCore.__new__(EngineCore)
    core.scheduler = w.scheduler
    assert core.reset_prefix_cache(True, True), "what is in doubt keeps no reset from its end"
    assert free() == 99 - len(in_doubt)
    before = free()
    ours.happened(Event(EventKind.FREED, TRANSFER, True))
    w.plan()
    assert free() == before + len(in_doubt)
    assert ours.counters.take() == {"doubtful_blocks": -len(in_doubt)}


def test_a_request_waits_where_little_room_would_be_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that could not have other blocks beside those in doubt would stand in the way of all others."""
    w = Server(monkeypatch, "kv_both", None, asynchronous=False)
    w.add("r", PROMPT)
    w.plan()
    w.scheduler.connector._scheduler._clock = lambda: time.monotonic() + 60.0
    w.plan()
    assert w.flying[-1].kv_connector_metadata.step.left == ()
    w.add("small", 6).skip_reading_prefix_cache = True
    assert w.plan() == ["small"]


@pytest.mark.parametrize("params", ["a text", ["a list"], 7])
def test_params_that_are_no_object_end_no_engine(monkeypatch: pytest.MonkeyPatch, params: object) -> None:
    """A client may write them into vllm_xargs, and vLLM takes them for an object."""
    w = Server(monkeypatch, "kv_both", None, asynchronous=False)
    request = w.add("r", PROMPT, 1, extra_args={"kv_transfer_params": params})
    request.skip_reading_prefix_cache = True
    assert w.plan() == ["r"]
    w.land()
    assert request.is_finished() and len(w.agent.keeps) == 1


def test_a_multi_connector_reads_what_is_counted() -> None:
    """It looks connectors up by their name, in the process that writes metrics."""
    ours = Stats(data={"kept": 2})
    newer = hasattr(MultiKVConnectorStats, "to_dict")
    read = MultiConnector.build_kv_connector_stats({"Connector": ours.data if newer else {"data": ours.data}})
    assert read is not None and read["Connector"].data == {"kept": 2}
