"""Thoughts that leave at their end, over vLLM's own schedulers and blocks, with made-up outputs.

It needs vLLM: test_kept_thoughts.py runs it. UNIT_MODEL is a model's directory; its configuration is read.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from vllm.v1.metrics.stats import PrefixCacheStats
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import RequestStatus

sys.path.insert(0, str(Path(__file__).parent.parent))

from governed_unit import BLOCK, World
from vllmworld import CUT, SETTINGS, FakeDoor, found_ticket

from meridian.door import CacheTerms, DoorError, Event, EventKind, Found
from meridian.vllm.connector import Connector
from meridian.vllm.ended_thoughts import EndedThoughts, settled_after
from meridian.vllm.forced_ends import Heard
from meridian.vllm.scheduler import ConnectorScheduler

END = 20
"""Tokens are their places in an answer: so long are thoughts."""
TRANSFER = bytes(range(1, 17))


class Kept(World):
    """A scheduler with the connector, at whose door the test is the agent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, asynchronous: bool, blocks: int) -> None:
        super().__init__(monkeypatch, asynchronous, blocks=blocks, governed=False)
        assert CUT.publication.block_tokens == BLOCK
        self.now = 0.0
        self.connector_scheduler = ConnectorScheduler(
            SETTINGS, CUT, produces=True, consumes=True, clock=lambda: self.now
        )
        self.door = FakeDoor(cache=CacheTerms(BLOCK, 0.0))
        self.connector_scheduler.attach(self.door)
        self.pool = self.scheduler.kv_cache_manager.block_pool
        self.connector_scheduler.keep_thoughts(
            EndedThoughts(
                ((END,),),
                block_tokens=BLOCK,
                batch=2,
                pool=self.pool,
                under_pressure=False,
                settled_after=settled_after(self.scheduler.vllm_config),
                clock=lambda: self.now,
            )
        )
        connector = Connector.__new__(Connector)
        connector._scheduler, connector._kv_cache_config = (
            self.connector_scheduler,
            self.scheduler.kv_cache_config,
        )
        connector._forced_ends = Heard()
        self.scheduler.connector = connector
        self.scheduler.connector_prefix_cache_stats = PrefixCacheStats()
        self.scheduler.recompute_kv_load_failures = True

    def blocks_of(self, name: str) -> list[int]:
        blocks: list[int] = self.scheduler.kv_cache_manager.get_block_ids(name)[0]
        return blocks

    def until(self, reached: Callable[[], bool]) -> None:
        for _ in range(300):
            if reached():
                return
            for find, asked in self.door.finds:
                if not asked.done():
                    asked.set_result(self.found(find))
            self.step()
        raise AssertionError("it was not reached in 300 steps")

    def found(self, find: Any) -> Found:
        """Return what the cell has for a question: nothing, unless a test says otherwise."""
        return Found()

    def free(self, number: int) -> None:
        self.connector_scheduler.happened(Event(EventKind.FREED, self.door.keeps[number][0].transfer, False))


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Kept]:
    return lambda **how: Kept(monkeypatch, request.param, **how)


def test_what_leaves_is_computed_and_pinned(world: Callable[..., Kept]) -> None:
    w = world(blocks=100)
    request = w.add("a", prompt=8, answer=40)
    w.until(lambda: bool(w.door.keeps))
    keep, asked = w.door.keeps[0]
    assert list(keep.tokens) == list(request.all_token_ids)[: 6 * BLOCK], "two blocks of prompt, two batches"
    assert END in request.output_token_ids and len(request.output_token_ids) <= END + 3
    assert keep.tables == [w.blocks_of("a")[:6]]
    assert [w.pool.blocks[number].ref_cnt for number in keep.tables[0]] == [2] * 6
    asked.set_result(None)
    w.free(0)
    w.step()
    assert [w.pool.blocks[number].ref_cnt for number in keep.tables[0]] == [1] * 6
    w.until(lambda: request.status == RequestStatus.FINISHED_LENGTH_CAPPED)
    assert len(w.door.keeps) == 2, "and all of it when it ends"


def test_vllm_says_how_many_tokens_may_be_under_way(world: Callable[..., Kept]) -> None:
    w = world(blocks=100)
    assert settled_after(w.scheduler.vllm_config) == (3 if w.asynchronous else 2)


def test_vllm_steps_until_nothing_is_pinned(world: Callable[..., Kept]) -> None:
    w = world(blocks=100)
    w.add("a", prompt=8, answer=23)
    w.until(lambda: bool(w.door.keeps))
    w.scheduler.finish_requests("a", RequestStatus.FINISHED_ABORTED)
    free = w.pool.get_num_free_blocks()
    for _ in range(3):
        w.step()
    assert w.scheduler.has_requests(), "vLLM would not hear that the agent is done"
    w.free(0)
    for _ in range(3):
        w.step()
    assert not w.scheduler.has_requests() and w.pool.get_num_free_blocks() == 99 > free


def test_a_request_that_loses_its_blocks_comes_back(world: Callable[..., Kept]) -> None:
    w = world(blocks=30)
    w.add("b", prompt=40, answer=75)
    request = w.add("a", prompt=8, answer=60)
    others = 0

    def leaves() -> bool:
        nonlocal others
        for keep, asked in w.door.keeps[others:]:
            if set(keep.tables[0]) <= set(w.blocks_of("a")):
                return True
            asked.set_result(None)
            w.free(others)
            others += 1
        return False

    w.until(leaves)
    keep, asked = w.door.keeps[others]
    pinned = set(keep.tables[0])
    # The other needs all blocks but those that are pinned, though their request has lost them.
    w.until(lambda: request.num_preemptions > 0)
    for _ in range(4):
        w.step()
        assert not pinned & set(w.blocks_of("b")), "a block was given away that the agent reads"
    assert all(w.pool.blocks[number].ref_cnt >= 1 for number in pinned)
    asked.set_result(None)
    w.free(others)

    def found(find: Any) -> Found:
        if find.request_id != "a" or len(find.tokens) < 6 * BLOCK:
            return Found()
        return Found(6 * BLOCK, found_ticket(TRANSFER))

    w.found = found  # type: ignore[method-assign]
    w.now = 3.0  # when it lost its blocks, they were still on their way
    w.until(lambda: len(w.blocks_of("b")) >= 28)  # it has overwritten nearly all
    w.scheduler.finish_requests("b", RequestStatus.FINISHED_ABORTED)
    w.until(lambda: bool(w.door.accepts))
    accept, taken = w.door.accepts[0]
    assert list(accept.tokens) == list(request.all_token_ids)[: 6 * BLOCK]
    assert accept.tables == [w.blocks_of("a")[:6]] and request.num_output_tokens > END
    taken.set_result(TRANSFER)
    w.connector_scheduler.happened(Event(EventKind.READY, TRANSFER, True))
    while w.flying:
        w.land()
    w.scheduler._update_from_kv_xfer_finished(KVConnectorOutput(finished_recving={"a"}))
    assert w.connector_scheduler.counters.recalled_tokens == 6 * BLOCK - accept.present_tokens > 0
    w.until(request.is_finished)
    assert list(request.output_token_ids) == list(range(60)), "a token is lost or there twice"


def test_without_the_cell_it_is_computed_again(world: Callable[..., Kept]) -> None:
    w = world(blocks=30)
    w.door.serving = False
    w.add("b", prompt=40, answer=75)
    request = w.add("a", prompt=8, answer=60)
    w.until(request.is_finished)
    assert request.num_preemptions > 0 and list(request.output_token_ids) == list(range(60))
    assert w.door.keeps == [] and w.door.finds == [] and not w.connector_scheduler.awaits_blocks


def test_a_fault_where_thoughts_are_followed_ends_nothing(
    world: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    w = world(blocks=100)
    request = w.add("a", prompt=8, answer=40)
    w.until(lambda: bool(w.door.keeps))
    keep, asked = w.door.keeps[0]
    monkeypatch.setattr(w.connector_scheduler.thoughts, "_due", broken)
    for _ in range(3):
        w.step()
    assert [w.pool.blocks[number].ref_cnt for number in keep.tables[0]] == [2] * 6, "they may be read"
    asked.set_result(None)
    w.free(0)
    w.until(request.is_finished)
    assert not w.connector_scheduler.awaits_blocks and list(request.output_token_ids) == list(range(40))
    assert len({id(r) for r in caplog.records if "at fault" in r.getMessage()}) == 1


def test_a_fault_where_blocks_come_back_ends_nothing(
    world: Callable[..., Kept], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    w = world(blocks=30)
    assert w.connector_scheduler.thoughts is not None
    monkeypatch.setattr(w.connector_scheduler.thoughts.refetches, "matched", broken)
    w.door.serving = False
    w.add("b", prompt=40, answer=75)
    request = w.add("a", prompt=8, answer=60)
    w.until(request.is_finished)
    assert request.num_preemptions > 0 and list(request.output_token_ids) == list(range(60))
    assert len({id(r) for r in caplog.records if "at fault" in r.getMessage()}) == 1


def broken(*_: object) -> None:
    raise RuntimeError("test")


class Chance(Kept):
    """A cell whose agent is slow, fails and hangs by chance, and workers that report what they are told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, asynchronous: bool, seed: int) -> None:
        super().__init__(monkeypatch, asynchronous, blocks=34)
        self.chance = random.Random(seed)
        self.stored: list[list[int]] = []
        self.watches: dict[str, Any] = {}
        self.due: list[tuple[float, Callable[[], None]]] = []
        self.seen = [0, 0, 0]

    def news(self, number: int, of: list[Any]) -> list[Any]:
        begin, self.seen[number] = self.seen[number], len(of)
        return of[begin:]

    def after(self, do: Callable[[], None]) -> None:
        self.due.append((self.now + self.chance.choice([0.0, 0.1, 0.5, 3.0]), do))

    def agent(self) -> None:
        for find, asked in self.news(0, self.door.finds):
            if self.chance.random() < 0.8:  # else it never answers
                self.after(partial(self.tell, find, asked))
        for keep, asked in self.news(1, self.door.keeps):
            asked.set_result(None)
            self.after(partial(self.take, keep))
        for accept, taken in self.news(2, self.door.accepts):
            transfer = accept.ticket[-16:]
            taken.set_result(transfer)
            self.after(partial(self.send, transfer))
        ripe = [do for at, do in self.due if at <= self.now]
        self.due = [(at, do) for at, do in self.due if at > self.now]
        for do in ripe:
            do()

    def tell(self, find: Any, asked: Any) -> None:
        asked.set_result(self.found(find))

    def take(self, keep: Any) -> None:
        self.stored.append(list(keep.tokens))
        self.connector_scheduler.happened(Event(EventKind.FREED, keep.transfer, False))

    def found(self, find: Any) -> Found:
        tokens, most = list(find.tokens), 0
        for stored in self.stored:
            same = next((i for i, (a, b) in enumerate(zip(stored, tokens, strict=False)) if a != b), None)
            same = min(len(stored), len(tokens)) if same is None else same
            most = max(most, same // BLOCK * BLOCK)
        if most <= find.present_tokens:
            return Found()
        return Found(most, found_ticket(self.chance.randbytes(16)))

    def send(self, transfer: bytes) -> None:
        if self.chance.random() < 0.7:
            self.connector_scheduler.happened(Event(EventKind.READY, transfer, True))
        else:
            self.connector_scheduler.happened(
                Event(EventKind.FAILED, transfer, True, DoorError("move", "by chance"))
            )
            self.connector_scheduler.happened(Event(EventKind.FREED, transfer, True))

    def land(self) -> None:
        step = self.flying[0].kv_connector_metadata.step
        self.watches |= step.watches
        lost = {block for name in step.failed for block in self.watches[name].blocks}
        told = KVConnectorOutput(
            finished_recving={*step.landed, *step.failed},
            finished_sending=set(step.freed),
            invalid_block_ids=lost,
        )
        update = self.scheduler.update_from_output

        def with_transfers(planned: Any, output: Any) -> Any:
            output.kv_connector_output = told
            return update(planned, output)

        self.scheduler.update_from_output = with_transfers
        try:
            super().land()
        finally:
            self.scheduler.update_from_output = update


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_a_tight_pool_serves_all_whatever_the_cell_does(
    monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    """Requests in blocks for fewer: each ends with the right tokens, and no block stays behind."""
    left = came_back = 0
    for seed in range(6):
        w = Chance(monkeypatch, asynchronous, seed)
        serve_all(w)
        left, came_back = left + len(w.door.keeps), came_back + len(w.door.accepts)
    assert left and came_back, "nothing left, or nothing came back"


def serve_all(w: Chance) -> None:
    """Let requests come, three at a time, until twelve have ended, and look at what they got."""
    requests: list[Any] = []
    for _ in range(5000):
        w.agent()
        if len(requests) < 12 and sum(not request.is_finished() for request in requests) < 3:
            requests.append(w.add(f"r{len(requests)}", prompt=8, answer=w.chance.randrange(40, 100)))
        elif not w.scheduler.has_requests():
            break
        w.step()
        w.now += 0.1
    for request in requests:
        assert list(request.output_token_ids) == list(range(request.max_tokens)), "it is not as alone"
    assert len(requests) == 12 and not w.scheduler.has_requests()
    while w.flying:
        w.land()
    assert w.pool.get_num_free_blocks() == 33, "a block stays behind"
