"""Models all of whose layers have sliding windows: vLLM's blocks do not say whose they are.

Of such a model vLLM has one group of layers, and puts the null block, number 0, where a
window has moved on, in the table of every long request. It looks for requests that have a
block which could not be loaded, and goes on in front of it: so the null block must not be
named, and where a window was given up there is nothing to go on from.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from vllmworld import BLOCK, CUT, SETTINGS, WINDOWED, FakeDoor, FakeRankDoor, Request, decode_params

from meridian.door import CacheTerms, DoorError, Layer, Publication
from meridian.vllm.cut import Cut
from meridian.vllm.scheduler import ConnectorScheduler
from meridian.vllm.worker import ConnectorWorker

TRANSFER = bytes(range(1, 17))
TOKENS = list(range(16))
NULL = 0
ORDINARY = {"prefixes_stand_alone": True, "names_media": True}
"""What most models are."""


def reports_of_a_failed_load(cut: Cut, block_ids: tuple[list[int], ...]) -> tuple[set[str], set[int]]:
    """Let a load fail whose request had its first block; return what vLLM hears: requests, and blocks."""
    scheduler = ConnectorScheduler(SETTINGS, cut, produces=False, consumes=True)
    scheduler.attach(door := FakeDoor())
    worker = ConnectorWorker(FakeRankDoor())
    request = Request("d", TOKENS, decode_params(TRANSFER, TOKENS))
    assert scheduler.matched_tokens(request, BLOCK) == (len(TOKENS) - BLOCK, True)
    scheduler.allocated(request, block_ids, len(TOKENS) - BLOCK)
    worker.told(scheduler.step())
    door.accepts[0][1].set_exception(DoorError("gone", "the prefill server is gone"))
    worker.told(scheduler.step())
    report = worker.report()
    assert report.received == {"d"}
    return report.failed, worker.take_invalid_blocks()


def test_a_failed_load_is_told_by_its_request() -> None:
    assert not WINDOWED.blocks_tell_whose
    assert reports_of_a_failed_load(WINDOWED, ([NULL, NULL, 7, 8],)) == ({"d"}, set())


def test_where_blocks_tell_whose_they_are_they_are_named() -> None:
    assert CUT.blocks_tell_whose
    assert reports_of_a_failed_load(CUT, ([5, 6, 7, 8],)) == (set(), {6, 7, 8})


def test_several_groups_are_told_by_their_request() -> None:
    layers = [Layer(2, 8, window_tokens=8), Layer(2, 8)]
    cut = Cut(Publication("fp32", layers, BLOCK, 100), (0, 1))
    assert not cut.blocks_tell_whose
    assert reports_of_a_failed_load(cut, ([NULL, NULL, 7, 8], [1, 2, 3, 4])) == ({"d"}, set())


def test_layers_of_several_sizes_in_one_group_have_one_table() -> None:
    cut = Cut(Publication("fp32", [Layer(2, 8), Layer(2, 16)], BLOCK, 100), (0, 0))
    assert reports_of_a_failed_load(cut, ([5, 6, 7, 8],)) == (set(), {6, 7, 8})


@dataclass
class Results:
    """As vLLM's KVConnectorTransferResults."""

    finished_sending: set[str] = field(default_factory=set)
    finished_recving: set[str] = field(default_factory=set)
    failed_recving: set[str] = field(default_factory=set)


class Base:
    """As vLLM's KVConnectorBase_V1."""

    def __init__(self, vllm_config: Any, role: object, kv_cache_config: object) -> None:
        self._kv_transfer_config = vllm_config.kv_transfer_config
        self._kv_cache_config = kv_cache_config


class Factory:
    """As vLLM's, which knows a connector by its name once it is told."""

    @classmethod
    def register_connector(cls, name: str, module_path: str, class_name: str) -> None: ...


class Bystander(FakeDoor):
    """A door that may be opened."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()

    def open(self, required: bool) -> None: ...
    def publish(self, publication: Publication) -> None: ...


class Keeper(Bystander):
    """One whose agent keeps prefixes."""

    def __init__(self, *_: object, **__: object) -> None:
        super().__init__()
        self.cache = CacheTerms(BLOCK, 0.0)


@pytest.fixture(params=[Results, None], ids=["0.32", "0.25"])
def connector(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module, with as much of a newer or an older vLLM as it imports."""
    base: dict[str, object] = {
        "KVConnectorBase_V1": Base,
        "KVConnectorMetadata": object,
        "KVConnectorRole": SimpleNamespace(SCHEDULER="scheduler"),
        "KVConnectorWorkerMetadata": object,
        "SupportsHMA": object,
    }
    if request.param is not None:
        base["KVConnectorTransferResults"] = request.param
    v1 = "vllm.distributed.kv_transfer.kv_connector.v1"
    imported: dict[str, dict[str, object]] = {
        "vllm": {},
        "vllm.v1": {},
        "vllm.distributed.kv_transfer.kv_connector.factory": {"KVConnectorFactory": Factory},
        f"{v1}.base": base,
        f"{v1}.metrics": dict.fromkeys(("KVConnectorPromMetrics", "KVConnectorStats"), object),
        "vllm.v1.kv_cache_interface": dict.fromkeys(
            ("FullAttentionSpec", "MLAAttentionSpec", "SlidingWindowSpec"), object
        ),
        "vllm.v1.metrics.utils": {"create_metric_per_engine": None},
        "vllm.v1.request": {"RequestStatus": None},
    }
    for name, members in imported.items():
        theirs = ModuleType(name)
        vars(theirs).update(members, __path__=[])
        monkeypatch.setitem(sys.modules, name, theirs)
    ours = [f"meridian.vllm.{name}" for name in ("connector", "engine_config", "stats")]
    assert not set(ours) & set(sys.modules)
    module = importlib.import_module(ours[0])
    monkeypatch.setattr(module, "Door", Bystander)
    monkeypatch.setattr(module, "_log_like_vllm", lambda: None)
    yield module
    for name in ours:
        del sys.modules[name]


@pytest.mark.parametrize("cut", [CUT, WINDOWED], ids=["whole", "windowed"])
def test_a_vllm_that_cannot_hear_of_it_loads_nothing(
    connector: Any, cut: Cut, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = SimpleNamespace(cut=lambda: cut, name="m", one_step_at_a_time=True, **ORDINARY)
    monkeypatch.setattr(connector, "Model", lambda *_: model)
    transfer = SimpleNamespace(
        kv_connector_extra_config={"socket": "door.sock"},
        kv_role="kv_consumer",
        is_kv_producer=False,
        is_kv_consumer=True,
        engine_id="e",
    )
    older = connector.KVConnectorTransferResults is None
    with caplog.at_level(logging.WARNING, "meridian.vllm"):
        made = connector.Connector(SimpleNamespace(kv_transfer_config=transfer), "scheduler", None)
    request = Request("d", TOKENS, decode_params(TRANSFER, TOKENS))
    loads = made.get_num_new_matched_tokens(request, 0)
    assert loads == ((0, False) if older and cut is WINDOWED else (len(TOKENS), True))
    assert ("sliding windows" in caplog.text) == (older and cut is WINDOWED)


@pytest.mark.parametrize("one_step", [True, False])
def test_a_vllm_that_schedules_ahead_says_why_prompts_do_not_move_meanwhile(
    connector: Any, one_step: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = SimpleNamespace(cut=lambda: CUT, name="m", one_step_at_a_time=one_step, **ORDINARY)
    monkeypatch.setattr(connector, "Model", lambda *_: model)
    transfer = SimpleNamespace(
        kv_connector_extra_config={"socket": "door.sock"},
        kv_role="kv_producer",
        is_kv_producer=True,
        is_kv_consumer=False,
        engine_id="e",
    )
    with caplog.at_level(logging.INFO, "meridian.vllm"):
        connector.Connector(SimpleNamespace(kv_transfer_config=transfer), "scheduler", None)
    assert ("asynchronous scheduling" in caplog.text) == (not one_step)


@pytest.mark.parametrize("flaw", [None, "prefixes_stand_alone", "names_media"])
def test_what_is_not_shared_is_said(
    connector: Any, flaw: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ordinary = ORDINARY | ({flaw: False} if flaw else {})
    model = SimpleNamespace(cut=lambda: CUT, name="m", one_step_at_a_time=True, **ordinary)
    monkeypatch.setattr(connector, "Model", lambda *_: model)
    monkeypatch.setattr(connector, "Door", Keeper)
    transfer = SimpleNamespace(
        kv_connector_extra_config={"socket": "door.sock"},
        kv_role="kv_both",
        is_kv_producer=True,
        is_kv_consumer=True,
        engine_id="e",
    )
    with caplog.at_level(logging.WARNING, "meridian.vllm"):
        made = connector.Connector(SimpleNamespace(kv_transfer_config=transfer), "scheduler", None)
    place = SimpleNamespace(offset=0, length=1)
    media = [SimpleNamespace(identifier="renderer0-mm-1-image-0", mm_position=place)]
    sees = Request("sees", TOKENS, None, mm_features=media)
    asks = made.get_num_new_matched_tokens(sees, 0)
    assert asks == ((0, False) if flaw else (None, False))
    assert ("depends on how it goes on" in caplog.text) == (flaw == "prefixes_stand_alone")
    assert ("pictures or sounds" in caplog.text) == (flaw == "names_media")


def test_vllm_hears_which_requests_failed(connector: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if connector.KVConnectorTransferResults is None:
        return
    monkeypatch.setattr(connector, "Model", lambda *_: None)
    transfer = SimpleNamespace(kv_connector_extra_config={"socket": "door.sock"})
    made = connector.Connector(SimpleNamespace(kv_transfer_config=transfer), "worker", None)
    report = connector.Report(sent={"p"}, received={"d", "e"}, failed={"d"})
    monkeypatch.setattr(made, "_report", lambda: report)
    assert made.get_transfer_results(set()) == Results({"p"}, {"d", "e"}, {"d"})


@pytest.mark.parametrize(
    ("table", "offered"),
    [([NULL, 6, 7, 8], True), ([NULL, 6, 7, 8, 9], True), ([NULL, NULL, 7, 8, 9], False)],
    ids=["the prompt alone", "a short answer", "the window has moved on"],
)
def test_a_prompt_whose_window_has_moved_on_is_not_offered(table: list[int], offered: bool) -> None:
    """A prefill leg of more than one token: the null block would go for the prompt's last ones."""
    scheduler = ConnectorScheduler(SETTINGS, WINDOWED, produces=True, consumes=False)
    scheduler.attach(door := FakeDoor())
    prompt = list(range(14))  # the window begins in the second block
    request = Request("p", prompt, {"do_remote_decode": True}, num_computed_tokens=4 * len(table))
    held, params = scheduler.finished(request, (table,), complete=True)
    assert (held, params is not None, len(door.offers)) == (offered, offered, int(offered))
    assert scheduler.counters.declined == (not offered)


def test_each_group_has_its_own_window() -> None:
    layers = [Layer(2, 8, window_tokens=8), Layer(2, 8), Layer(2, 8, window_tokens=4), Layer(2, 8)]
    cut = Cut(Publication("fp32", layers, BLOCK, 100), (2, 0, 1))
    tables = ([1, 2, 3, 4], [NULL, NULL, NULL, 4], [NULL, NULL, 3, 4])
    assert cut.tables(tables, len(TOKENS)) == [tables[2], tables[0], tables[1]]
    with pytest.raises(ValueError, match="the last 8 of 16 tokens"):
        cut.tables((*tables[:2], tables[1]), len(TOKENS))
