"""Prompts that are offered before their last chunk: what is told, what is held, and who may have it back."""

from __future__ import annotations

from typing import Any

import pytest
from test_vllm_scheduler import BLOCKS, PROMISED, TOKENS, TRANSFER, Scheduler, prefill_request
from vllmworld import CUT, SETTINGS, WINDOWED, FakePool, FakeRankDoor, Request, decode_params

from meridian.door import DoorError, EventKind
from meridian.vllm.cut import Cut
from meridian.vllm.handoffs import Step
from meridian.vllm.worker import ConnectorWorker

HELD = {block: 1 for block in BLOCKS[0]}


class Chunked(Scheduler):
    """A connector whose vLLM scheduler gives promised prompts all blocks at once."""

    def __init__(self, *, cut: Cut = CUT, by_layers: bool = True) -> None:
        super().__init__(cut=cut, by_layers=by_layers)
        self.pool = FakePool()
        self.holding = self.early_offers.hold_blocks_in(self.pool)

    @property
    def held(self) -> dict[int, int]:
        return dict(+self.pool.held)

    def begin(self) -> Request:
        """Compute the first four tokens of a prompt of ten."""
        request = prefill_request(**PROMISED)
        assert self.early_offers.wants_all_blocks(request)
        self.allocated(request, BLOCKS, 0)
        self.early_offers.scheduled("p", 4, None)
        assert self.step().computing == ((TRANSFER, 4),)
        return request


@pytest.fixture
def scheduler() -> Chunked:
    return Chunked()


def test_every_chunk_is_told(scheduler: Chunked) -> None:
    request = scheduler.begin()
    offer, answer = scheduler.door.offers[0]
    assert offer.tables == [BLOCKS[0]] and offer.layers == offer.computed_tokens == 0
    assert offer.keep > SETTINGS.keep, "the prompt may take longer than what is kept afterwards"
    assert scheduler.held == HELD and scheduler.door.told == []
    answer.set_result(b"")
    scheduler.early_offers.scheduled("p", 8, ([],))
    assert scheduler.door.told == [(TRANSFER, 2, 4)], "the step before is over"
    assert scheduler.step().computing == ((TRANSFER, 8),)
    scheduler.early_offers.scheduled("p", 10, ([],))
    assert scheduler.step().computing == ((TRANSFER, 0),), "the last"
    assert scheduler.door.told[1:] == [(TRANSFER, 2, 8)] and not scheduler.early_offers
    assert scheduler.finished(request, BLOCKS, complete=True) == (True, decode_params(TRANSFER, TOKENS))
    assert scheduler.door.told[2:] == [(TRANSFER, 2, 0)] and len(scheduler.door.offers) == 1
    scheduler.tell(EventKind.FREED, accepted=False)
    assert scheduler.step().freed == ("p",) and scheduler.held == {}
    assert scheduler.counters.chunked == scheduler.counters.ahead == 1


def test_a_rank_tells_up_to_which_token_its_layers_are_computed() -> None:
    door = FakeRankDoor()
    worker = ConnectorWorker(door, 2)
    worker.told(Step(computing=((TRANSFER, 4),)))
    worker.saved(0)
    worker.saved(1)
    worker.told(Step(computing=((TRANSFER, 0),)))
    worker.saved(0)
    assert door.told == [(TRANSFER, 1, 4), (TRANSFER, 2, 4), (TRANSFER, 1, 0)]


@pytest.mark.parametrize("tells", [True, False], ids=["told", "found out"])
def test_blocks_that_are_taken_stay_held_until_the_agent_has_stopped(scheduler: Chunked, tells: bool) -> None:
    request = scheduler.begin()
    scheduler.door.offers[0][1].set_result(b"")
    if tells:
        scheduler.early_offers.lost_blocks("p")
    others = ([17, 18, 19],)
    assert not tells or not scheduler.early_offers.wants_all_blocks(request), "its transfer is used up"
    scheduler.allocated(request, others, 0)
    assert scheduler.door.withdrawn == [TRANSFER]
    scheduler.early_offers.scheduled("p", 10, None)
    assert scheduler.step().computing == () and scheduler.held == HELD
    assert scheduler.early_offers.awaits_blocks and scheduler.early_offers.expects_blocks
    scheduler.now += 1.0
    assert scheduler.early_offers.awaits_blocks and not scheduler.early_offers.expects_blocks, (
        "then another request has to lose its own"
    )
    assert scheduler.finished(request, others, complete=True) == (False, None)
    assert len(scheduler.door.offers) == 1 and scheduler.held == HELD
    scheduler.tell(EventKind.FREED, accepted=False, code="withdrawn")
    assert scheduler.step().freed == (), "vLLM does not wait for that"
    assert scheduler.held == {} and not scheduler.early_offers.awaits_blocks and scheduler.holds == 0


def test_a_lost_prompt_that_its_taker_had_whole_leaves_nothing(scheduler: Chunked) -> None:
    scheduler.begin()
    scheduler.early_offers.lost_blocks("p")
    scheduler.tell(EventKind.FREED, accepted=False)
    scheduler.step()
    assert scheduler.held == {} and not scheduler._handoffs._taken


def test_an_abort_keeps_the_blocks_until_the_agent_has_stopped(scheduler: Chunked) -> None:
    request = scheduler.begin()
    assert scheduler.finished(request, BLOCKS, complete=False) == (True, None)
    assert scheduler.door.withdrawn == [TRANSFER] and scheduler.held == HELD
    scheduler.door.offers[0][1].set_result(b"")
    scheduler.step()
    assert scheduler.door.withdrawn == [TRANSFER] * 2, "the agent may not have known it before"
    scheduler.tell(EventKind.FREED, accepted=False, code="withdrawn")
    assert scheduler.step().freed == ("p",) and scheduler.held == {}


def test_an_offer_that_is_refused_holds_nothing_and_is_not_told_of(scheduler: Chunked) -> None:
    request = scheduler.begin()
    scheduler.door.offers[0][1].set_exception(DoorError("busy", "too much at once"))
    scheduler.step()
    assert scheduler.held == {}
    scheduler.early_offers.scheduled("p", 10, None)
    assert scheduler.step().computing == () and scheduler.door.told == []
    assert scheduler.finished(request, BLOCKS, complete=True) == (False, None)


def test_a_transfer_is_not_offered_for_two_prompts_that_are_computed(scheduler: Chunked) -> None:
    """The first was refused, and goes on: what is told of it would be believed of the second."""
    first = scheduler.begin()
    scheduler.door.offers[0][1].set_exception(DoorError("busy", "too much at once"))
    scheduler.step()
    second = prefill_request(**PROMISED)
    second.request_id = "q"
    scheduler.allocated(second, ([17, 18, 19],), 0)
    scheduler.early_offers.scheduled("q", 4, None)
    scheduler.early_offers.scheduled("p", 10, ([],))
    assert scheduler.step().computing == () and len(scheduler.door.offers) == 1 and scheduler.held == {}
    assert scheduler.finished(first, BLOCKS, complete=True) == (False, None), "vLLM has its blocks back"
    scheduler.early_offers.scheduled("q", 10, ([],))
    assert scheduler.step().computing == ((TRANSFER, 0),), "the first is over"
    assert scheduler.finished(second, ([17, 18, 19],), complete=True)[0]


def test_a_transfer_that_was_given_up_can_be_offered_again_at_once(scheduler: Chunked) -> None:
    """vLLM asks for a prefix, and so hears the end of the first, while it plans the second."""
    first = scheduler.begin()
    scheduler.finished(first, BLOCKS, complete=False)
    scheduler.tell(EventKind.FREED, accepted=False, code="withdrawn")
    second = prefill_request(**PROMISED)
    second.request_id = "q"
    scheduler.matched_tokens(second, 0)
    others = ([17, 18, 19],)
    scheduler.allocated(second, others, 0)
    scheduler.early_offers.scheduled("q", 4, None)
    assert scheduler.step().computing == ((TRANSFER, 4),)
    assert scheduler.held == {block: 1 for block in others[0]}, "the first has nothing any more"


def test_an_agent_that_was_away_at_the_beginning_is_offered_what_is_left(scheduler: Chunked) -> None:
    request = prefill_request(**PROMISED)
    scheduler.allocated(request, BLOCKS, 0)
    scheduler.door.serving = False
    scheduler.early_offers.scheduled("p", 4, None)
    assert scheduler.step().computing == () and scheduler.held == {}
    scheduler.door.serving = True
    scheduler.early_offers.scheduled("p", 8, ([],))
    assert scheduler.step().computing == ((TRANSFER, 8),) and scheduler.held == HELD


def test_what_is_not_taken_is_kept_no_longer_than_other_offers(scheduler: Chunked) -> None:
    request = scheduler.begin()
    scheduler.door.offers[0][1].set_result(b"")
    scheduler.early_offers.scheduled("p", 10, None)
    scheduler.now = 300.0
    scheduler.step()
    assert scheduler.door.withdrawn == [], "it is still computed"
    scheduler.finished(request, BLOCKS, complete=True)
    scheduler.now += SETTINGS.keep + SETTINGS.deadline + 3
    scheduler.step()
    assert scheduler.door.withdrawn == [TRANSFER]


def test_what_is_held_leaves_room(scheduler: Chunked) -> None:
    """For others that run, and for offers of prompts that are computed."""
    request = prefill_request(**PROMISED)
    scheduler.pool.blocks, scheduler.pool.free = range(24), 9
    assert scheduler.early_offers.wants_all_blocks(request), "a quarter is free then, and an eighth is held"
    scheduler.pool.free = 8
    assert not scheduler.early_offers.wants_all_blocks(request), "too few would be free"
    scheduler.pool.free = 24
    scheduler.begin()
    other = prefill_request(do_remote_decode=True, meridian_promised=True)
    other.request_id = "q"
    assert not scheduler.early_offers.wants_all_blocks(other), "too much would be held"
    scheduler.allocated(other, ([1, 2, 3],), 0)
    scheduler.early_offers.scheduled("q", 4, None)
    assert scheduler.step().computing == () and scheduler.held == HELD
    scheduler.early_offers.scheduled("q", 10, None)
    assert len(scheduler.step().computing) == 1, "with its last step it is"


def test_a_prompt_without_all_its_blocks_waits_for_its_last_step(scheduler: Chunked) -> None:
    request = prefill_request(**PROMISED)
    scheduler.allocated(request, ([7],), 0)
    scheduler.early_offers.scheduled("p", 4, None)
    assert scheduler.step().computing == () and not scheduler.door.offers
    scheduler.early_offers.scheduled("p", 10, ([8, 9],))
    assert scheduler.step().computing == ((TRANSFER, 0),) and scheduler.held == {}, (
        "nothing comes between this and its end"
    )


@pytest.mark.parametrize(
    ("scheduler", "params", "max_tokens"),
    [
        (Chunked(by_layers=False), PROMISED, 1),
        (Chunked(cut=WINDOWED), PROMISED, 1),
        (Scheduler(by_layers=True), PROMISED, 1),
        (Chunked(), {}, 1),
        (Chunked(), PROMISED, 2),
    ],
    ids=[
        "vLLM plans ahead",
        "a window moves on",
        "vLLM's own scheduler",
        "no decode engine waits",
        "it goes on",
    ],
)
def test_other_prompts_get_their_blocks_as_ever(
    scheduler: Scheduler, params: dict[str, Any], max_tokens: int
) -> None:
    request = prefill_request(**params)
    request.max_tokens = max_tokens
    assert not scheduler.early_offers.wants_all_blocks(request)
    scheduler.allocated(request, BLOCKS, 0)
    scheduler.early_offers.scheduled("p", 4, None)
    assert not scheduler.door.offers


def test_an_agent_that_does_not_know_chunks_is_offered_the_last_alone(
    scheduler: Chunked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(scheduler.door), "features", frozenset())
    request = prefill_request(**PROMISED)
    assert not scheduler.early_offers.wants_all_blocks(request)
