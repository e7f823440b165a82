"""Prompts that move chunk by chunk, on vLLM's own scheduler. It needs vLLM: test_chunks.py runs it.

The test plays the workers and the agent. UNIT_MODEL is a model's directory; only its configuration is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from governed_unit import BLOCK, World
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1
from vllm.v1.outputs import KVConnectorOutput
from vllm.v1.request import RequestStatus
from vllmworld import FakeDoor

from meridian.door import DoorError, Event, EventKind, _messages
from meridian.vllm import connector

TRANSFER = bytes(range(1, 17))
OTHER = bytes(range(2, 18))
PROMPT = 150
"""Tokens, of which vLLM computes 64 in a step: three chunks."""
PROMPT_BLOCKS = -(-PROMPT // BLOCK)


class Agent(FakeDoor):
    """An agent that takes what it is offered, and says what the test tells it to."""

    def __init__(self, *_: object, on_event: Callable[[Event], None], **__: object) -> None:
        super().__init__()
        self.say = on_event

    def open(self, *, required: bool = False) -> None: ...
    def publish(self, publication: object) -> None: ...

    def freed(self, transfer: bytes, problem: DoorError | None = None) -> None:
        self.say(Event(EventKind.FREED, transfer, False, problem))


class Cell(World):
    """A prefill server with an agent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, asynchronous: bool = False, **how: Any) -> None:
        monkeypatch.setattr(connector, "Door", Agent)
        transfer = KVTransferConfig(
            kv_connector="Connector",
            kv_connector_module_path="meridian.vllm",
            kv_role="kv_producer",
            engine_id="e",
            kv_connector_extra_config={"socket": "/nowhere"},
        )
        how = {"blocks": 320, "length": 1024, **how}
        super().__init__(monkeypatch, asynchronous, transfer=transfer, **how)
        self.agent: Agent = self.scheduler.connector._door
        self.pool = self.scheduler.kv_cache_manager.block_pool

    def promise(self, name: str, transfer: bytes = TRANSFER, prompt: int = PROMPT) -> Any:
        promised = {"do_remote_decode": True, "meridian_promised": True, "meridian_transfer": transfer.hex()}
        return self.add(name, prompt, 1, **promised)

    def computing(self) -> tuple[tuple[bytes, int], ...]:
        """Plan a step, and return what workers hear of it."""
        self.plan()
        told: tuple[tuple[bytes, int], ...] = self.flying[-1].kv_connector_metadata.step.computing
        return told

    def blocks(self, name: str) -> list[int]:
        """Return a request's blocks."""
        ids: list[int] = self.scheduler.kv_cache_manager.get_block_ids(name)[0]
        return ids

    def used(self) -> int:
        """How many blocks are not free, but for the null block."""
        return int(self.pool.num_gpu_blocks - self.pool.get_num_free_blocks() - 1)

    def report_freed(self) -> None:
        """Let a step tell workers whose blocks the agent is done with, and let them report it."""
        self.plan()
        freed = self.flying[-1].kv_connector_metadata.step.freed
        done = KVConnectorOutput(finished_sending=set(freed))
        self.scheduler._update_from_kv_xfer_finished(done)
        self.land()


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Cell]:
    return lambda **how: Cell(monkeypatch, **how)


def test_every_chunk_is_told_with_its_step(cell: Callable[..., Cell]) -> None:
    w = cell()
    request = w.promise("p")
    assert w.computing() == ((TRANSFER, 64),)
    offer, answer = w.agent.offers[0]
    blocks = w.flying[0].scheduled_new_reqs[0].block_ids[0]
    assert len(blocks) == PROMPT_BLOCKS and offer.tables == [blocks], (
        "workers know them, and so does the agent"
    )
    answer.set_result(b"")
    w.land()
    assert w.agent.told == []
    assert w.computing() == ((TRANSFER, 128),) and w.agent.told == [(TRANSFER, 1, 64)]
    w.land()
    assert w.computing() == ((TRANSFER, 0),) and w.agent.told[1:] == [(TRANSFER, 1, 128)]
    w.land()
    assert w.agent.told[2:] == [(TRANSFER, 1, 0)] and w.said["p"] == [0]
    assert request.is_finished() and w.used() == PROMPT_BLOCKS
    w.agent.freed(TRANSFER)
    w.report_freed()
    assert w.used() == 0 and not w.scheduler.requests


ANSWERS = [f"answer {i}" for i in range(4)]


def crowded(cell: Callable[..., Cell]) -> tuple[Cell, set[int]]:
    """Let growing answers take the blocks of a prompt that is offered; return which those were.

    The prompt came last, so it is the one that loses them.
    """
    w = cell(blocks=64)
    for name in ANSWERS:
        w.add(name, 28, 100)
    while not all(w.said[name] for name in ANSWERS):
        w.step()
    w.promise("p", prompt=32)
    w.scheduler.max_num_scheduled_tokens = 1 + len(ANSWERS)  # the prompt goes on token by token, as they do
    assert w.computing() == ((TRANSFER, 1),)
    w.agent.offers[0][1].set_result(b"")
    w.land()
    while not w.agent.withdrawn:
        assert not w.said["p"], "the prompt came to its end first"
        w.step()
    assert w.agent.withdrawn == [TRANSFER]
    return w, set(w.agent.offers[0][0].tables[0])


def test_a_prompt_that_vllm_preempts_keeps_its_blocks_until_the_agent_has_stopped(
    cell: Callable[..., Cell],
) -> None:
    w, offered = crowded(cell)
    for _ in range(8):
        w.step()
        taken = {block for name in ANSWERS for block in w.blocks(name)}
        assert not offered & taken, "a block is overwritten that the agent may read"
    assert all(w.pool.blocks[block].ref_cnt == 1 for block in offered)
    w.agent.freed(TRANSFER, DoorError("withdrawn", "it was taken back"))
    for _ in range(8):
        w.step()
    assert offered & {block for name in ANSWERS for block in w.blocks(name)}, "who needs them has them"
    while w.scheduler.requests:
        w.step()
    assert [len(w.said[name]) for name in ANSWERS] == [100] * len(ANSWERS)
    assert w.said["p"] == [0] and len(w.agent.offers) == 1, "its transfer is used up"
    assert w.used() == 0


def test_vllm_waits_for_blocks_that_come_back_in_a_moment(cell: Callable[..., Cell]) -> None:
    """Newer ones ask, as 0.32, and no other request loses its own."""
    w, _ = crowded(cell)
    scheduler = w.scheduler.connector._scheduler
    scheduler.early_offers._clock = lambda: scheduler._handoffs.lost or 0.0
    for _ in range(8):
        w.step()
    lost = {r.request_id for r in w.scheduler.waiting}
    asks = hasattr(KVConnectorBase_V1, "has_pending_block_frees")
    assert lost == {"p"} if asks else "p" in lost


def test_an_aborted_prompt_keeps_its_blocks_until_the_agent_has_stopped(cell: Callable[..., Cell]) -> None:
    w = cell()
    w.promise("p")
    w.step()
    w.agent.offers[0][1].set_result(b"")
    w.scheduler.finish_requests("p", RequestStatus.FINISHED_ABORTED)
    assert w.agent.withdrawn == [TRANSFER] and w.used() == PROMPT_BLOCKS
    assert w.scheduler.has_requests(), "vLLM steps on until it has them back"
    w.agent.freed(TRANSFER, DoorError("withdrawn", "it was taken back"))
    w.report_freed()
    assert w.used() == 0 and not w.scheduler.has_requests()


def test_a_prompt_that_lost_its_blocks_and_is_aborted_gives_them_back(cell: Callable[..., Cell]) -> None:
    w, _ = crowded(cell)
    w.scheduler.finish_requests(["p", *ANSWERS], RequestStatus.FINISHED_ABORTED)
    w.step()  # workers hear of it
    assert w.used() > 0 and w.scheduler.has_requests(), "vLLM steps on until it has them back"
    w.agent.freed(TRANSFER, DoorError("withdrawn", "it was taken back"))
    w.step()
    assert w.used() == 0 and not w.scheduler.has_requests()


def test_the_governors_victim_runs_again_in_other_blocks(cell: Callable[..., Cell]) -> None:
    """It loses them between two steps, and is planned again with the next."""
    w = cell()
    w.promise("p")
    w.step()
    w.agent.offers[0][1].set_result(b"")
    w.governor.decide = lambda step: preempt(step, w.governor.number("p"))
    w.step()
    w.scheduler._governing.exchange()  # else the step is told while the next one is computed
    w.governor.decide = lambda step: _messages.Decision(step=step.number)
    offered = w.agent.offers[0][0].tables[0]
    assert w.computing() == () and w.agent.withdrawn == [TRANSFER]
    # What was computed is found again where it is; the rest of the table is not written.
    mine, computed = w.blocks("p"), [b for b in offered if w.pool.blocks[b].block_hash is not None]
    assert mine[: len(computed)] == computed[: len(mine)] and not set(mine[len(computed) :]) & set(offered)
    w.land()
    w.agent.freed(TRANSFER, DoorError("withdrawn", "it was taken back"))
    while w.scheduler.has_requests():
        w.step()
    assert w.said["p"] == [0] and w.used() == 0 and len(w.agent.offers) == 1


def preempt(step: Any, number: int) -> Any:
    decision = _messages.Decision(step=step.number)
    decision.preempt.add(sequence=number)
    return decision


def test_prompts_that_share_a_beginning_are_told_only_of_what_is_computed(cell: Callable[..., Cell]) -> None:
    """The second finds blocks that are computed in the very step in which it begins."""
    w = cell()
    first = w.promise("a", prompt=40)
    second = w.promise("b", OTHER, prompt=100)
    second.prompt_token_ids[:40] = first.prompt_token_ids
    second._all_token_ids[:40] = first.prompt_token_ids
    second.block_hashes.clear()
    second.update_block_hashes()
    assert w.computing() == ((TRANSFER, 0), (OTHER, 64))
    assert w.blocks("a")[:10] == w.blocks("b")[:10], "they are shared"
    assert [offer.computed_tokens for offer, _ in w.agent.offers] == [0, 0] and w.agent.told == []


def test_where_blocks_are_few_a_prompt_is_offered_with_its_last_step(cell: Callable[..., Cell]) -> None:
    """What is held is not free for others: an eighth at most is."""
    w = cell(blocks=200)
    w.promise("p")
    assert w.computing() == () and len(w.blocks("p")) == 64 // BLOCK
    w.land()
    w.step()
    assert w.computing() == ((TRANSFER, 0),)


@pytest.mark.parametrize("how", [{"asynchronous": True}, {"governed": False}], ids=["async", "vLLM's own"])
def test_else_it_is_as_ever(cell: Callable[..., Cell], how: dict[str, Any]) -> None:
    w = cell(**how)
    w.promise("p")
    assert w.computing() == () and len(w.blocks("p")) == 64 // BLOCK and not w.agent.offers
    for _ in range(4):
        w.step()
    assert len(w.agent.offers) == 1 and w.said["p"]
