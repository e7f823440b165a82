"""Prompts that are offered before their last chunk: what is told, what is held, and who may have it back."""

from __future__ import annotations

from typing import Any

import pytest
from test_vllm_scheduler import BLOCKS, PROMISED, TOKENS, TRANSFER, Half, prefill_request
from vllmworld import CUT, SETTINGS, WINDOWED, FakePool, FakeRankDoor, Request, decode_params

from meridian.door import DoorError, EventKind
from meridian.vllm.cut import Cut
from meridian.vllm.handoffs import Step
from meridian.vllm.worker import WorkerHalf

HELD = {block: 1 for block in BLOCKS[0]}


class Chunked(Half):
    """A half whose scheduler gives promised prompts all blocks at once."""

    def __init__(self, *, cut: Cut = CUT, by_layers: bool = True) -> None:
        super().__init__(cut=cut, by_layers=by_layers)
        self.pool = FakePool()
        self.holding = self.promised.hold_blocks_in(self.pool)

    @property
    def held(self) -> dict[int, int]:
        return dict(+self.pool.held)

    def begin(self) -> Request:
        """Compute the first four tokens of a prompt of ten."""
        request = prefill_request(**PROMISED)
        assert self.promised.wants_all_blocks(request)
        self.allocated(request, BLOCKS, 0)
        self.promised.scheduled("p", 4, None)
        assert self.step().computing == ((TRANSFER, 4),)
        return request


@pytest.fixture
def half() -> Chunked:
    return Chunked()


def test_every_chunk_is_told(half: Chunked) -> None:
    request = half.begin()
    offer, answer = half.door.offers[0]
    assert offer.tables == [BLOCKS[0]] and offer.layers == offer.computed_tokens == 0
    assert offer.keep > SETTINGS.keep, "the prompt may take longer than what is kept afterwards"
    assert half.held == HELD and half.door.told == []
    answer.set_result(b"")
    half.promised.scheduled("p", 8, ([],))
    assert half.door.told == [(TRANSFER, 2, 4)], "the step before is over"
    assert half.step().computing == ((TRANSFER, 8),)
    half.promised.scheduled("p", 10, ([],))
    assert half.step().computing == ((TRANSFER, 0),), "the last"
    assert half.door.told[1:] == [(TRANSFER, 2, 8)] and not half.promised
    assert half.finished(request, BLOCKS, complete=True) == (True, decode_params(TRANSFER, TOKENS))
    assert half.door.told[2:] == [(TRANSFER, 2, 0)] and len(half.door.offers) == 1
    half.tell(EventKind.FREED, accepted=False)
    assert half.step().freed == ("p",) and half.held == {}
    assert half.counters.chunked == half.counters.ahead == 1


def test_a_rank_tells_up_to_which_token_its_layers_are_computed() -> None:
    door = FakeRankDoor()
    worker = WorkerHalf(door, 2)
    worker.told(Step(computing=((TRANSFER, 4),)))
    worker.saved(0)
    worker.saved(1)
    worker.told(Step(computing=((TRANSFER, 0),)))
    worker.saved(0)
    assert door.told == [(TRANSFER, 1, 4), (TRANSFER, 2, 4), (TRANSFER, 1, 0)]


@pytest.mark.parametrize("tells", [True, False], ids=["told", "found out"])
def test_blocks_that_are_taken_stay_held_until_the_agent_has_stopped(half: Chunked, tells: bool) -> None:
    request = half.begin()
    half.door.offers[0][1].set_result(b"")
    if tells:
        half.promised.lost_blocks("p")
    others = ([17, 18, 19],)
    assert not tells or not half.promised.wants_all_blocks(request), "its transfer is used up"
    half.allocated(request, others, 0)
    assert half.door.withdrawn == [TRANSFER]
    half.promised.scheduled("p", 10, None)
    assert half.step().computing == () and half.held == HELD
    assert half.promised.awaits_blocks and half.promised.expects_blocks
    half.now += 1.0
    assert half.promised.awaits_blocks and not half.promised.expects_blocks, (
        "then another request has to lose its own"
    )
    assert half.finished(request, others, complete=True) == (False, None)
    assert len(half.door.offers) == 1 and half.held == HELD
    half.tell(EventKind.FREED, accepted=False, code="withdrawn")
    assert half.step().freed == (), "vLLM does not wait for that"
    assert half.held == {} and not half.promised.awaits_blocks and half.holds == 0


def test_a_lost_prompt_that_its_taker_had_whole_leaves_nothing(half: Chunked) -> None:
    half.begin()
    half.promised.lost_blocks("p")
    half.tell(EventKind.FREED, accepted=False)
    half.step()
    assert half.held == {} and not half._handoffs._taken


def test_an_abort_keeps_the_blocks_until_the_agent_has_stopped(half: Chunked) -> None:
    request = half.begin()
    assert half.finished(request, BLOCKS, complete=False) == (True, None)
    assert half.door.withdrawn == [TRANSFER] and half.held == HELD
    half.door.offers[0][1].set_result(b"")
    half.step()
    assert half.door.withdrawn == [TRANSFER] * 2, "the agent may not have known it before"
    half.tell(EventKind.FREED, accepted=False, code="withdrawn")
    assert half.step().freed == ("p",) and half.held == {}


def test_an_offer_that_is_refused_holds_nothing_and_is_not_told_of(half: Chunked) -> None:
    request = half.begin()
    half.door.offers[0][1].set_exception(DoorError("busy", "too much at once"))
    half.step()
    assert half.held == {}
    half.promised.scheduled("p", 10, None)
    assert half.step().computing == () and half.door.told == []
    assert half.finished(request, BLOCKS, complete=True) == (False, None)


def test_a_transfer_is_not_offered_for_two_prompts_that_are_computed(half: Chunked) -> None:
    """The first was refused, and goes on: what is told of it would be believed of the second."""
    first = half.begin()
    half.door.offers[0][1].set_exception(DoorError("busy", "too much at once"))
    half.step()
    second = prefill_request(**PROMISED)
    second.request_id = "q"
    half.allocated(second, ([17, 18, 19],), 0)
    half.promised.scheduled("q", 4, None)
    half.promised.scheduled("p", 10, ([],))
    assert half.step().computing == () and len(half.door.offers) == 1 and half.held == {}
    assert half.finished(first, BLOCKS, complete=True) == (False, None), "vLLM has its blocks back"
    half.promised.scheduled("q", 10, ([],))
    assert half.step().computing == ((TRANSFER, 0),), "the first is over"
    assert half.finished(second, ([17, 18, 19],), complete=True)[0]


def test_a_transfer_that_was_given_up_can_be_offered_again_at_once(half: Chunked) -> None:
    """vLLM asks for a prefix, and so hears the end of the first, while it plans the second."""
    first = half.begin()
    half.finished(first, BLOCKS, complete=False)
    half.tell(EventKind.FREED, accepted=False, code="withdrawn")
    second = prefill_request(**PROMISED)
    second.request_id = "q"
    half.matched_tokens(second, 0)
    others = ([17, 18, 19],)
    half.allocated(second, others, 0)
    half.promised.scheduled("q", 4, None)
    assert half.step().computing == ((TRANSFER, 4),)
    assert half.held == {block: 1 for block in others[0]}, "the first has nothing any more"


def test_an_agent_that_was_away_at_the_beginning_is_offered_what_is_left(half: Chunked) -> None:
    request = prefill_request(**PROMISED)
    half.allocated(request, BLOCKS, 0)
    half.door.serving = False
    half.promised.scheduled("p", 4, None)
    assert half.step().computing == () and half.held == {}
    half.door.serving = True
    half.promised.scheduled("p", 8, ([],))
    assert half.step().computing == ((TRANSFER, 8),) and half.held == HELD


def test_what_nobody_takes_is_kept_no_longer_than_other_offers(half: Chunked) -> None:
    request = half.begin()
    half.door.offers[0][1].set_result(b"")
    half.promised.scheduled("p", 10, None)
    half.now = 300.0
    half.step()
    assert half.door.withdrawn == [], "it is still computed"
    half.finished(request, BLOCKS, complete=True)
    half.now += SETTINGS.keep + SETTINGS.deadline + 3
    half.step()
    assert half.door.withdrawn == [TRANSFER]


def test_what_is_held_leaves_room(half: Chunked) -> None:
    """For others that run, and for offers of prompts that are computed."""
    request = prefill_request(**PROMISED)
    half.pool.blocks, half.pool.free = range(24), 9
    assert half.promised.wants_all_blocks(request), "a quarter is free then, and an eighth is held"
    half.pool.free = 8
    assert not half.promised.wants_all_blocks(request), "too few would be free"
    half.pool.free = 24
    half.begin()
    other = prefill_request(do_remote_decode=True, meridian_promised=True)
    other.request_id = "q"
    assert not half.promised.wants_all_blocks(other), "too much would be held"
    half.allocated(other, ([1, 2, 3],), 0)
    half.promised.scheduled("q", 4, None)
    assert half.step().computing == () and half.held == HELD
    half.promised.scheduled("q", 10, None)
    assert len(half.step().computing) == 1, "with its last step it is"


def test_a_prompt_without_all_its_blocks_waits_for_its_last_step(half: Chunked) -> None:
    request = prefill_request(**PROMISED)
    half.allocated(request, ([7],), 0)
    half.promised.scheduled("p", 4, None)
    assert half.step().computing == () and not half.door.offers
    half.promised.scheduled("p", 10, ([8, 9],))
    assert half.step().computing == ((TRANSFER, 0),) and half.held == {}, (
        "nothing comes between this and its end"
    )


@pytest.mark.parametrize(
    ("half", "params", "max_tokens"),
    [
        (Chunked(by_layers=False), PROMISED, 1),
        (Chunked(cut=WINDOWED), PROMISED, 1),
        (Half(by_layers=True), PROMISED, 1),
        (Chunked(), {}, 1),
        (Chunked(), PROMISED, 2),
    ],
    ids=["vLLM plans ahead", "a window moves on", "vLLM's own scheduler", "nobody waits", "it goes on"],
)
def test_other_prompts_get_their_blocks_as_ever(half: Half, params: dict[str, Any], max_tokens: int) -> None:
    request = prefill_request(**params)
    request.max_tokens = max_tokens
    assert not half.promised.wants_all_blocks(request)
    half.allocated(request, BLOCKS, 0)
    half.promised.scheduled("p", 4, None)
    assert not half.door.offers


def test_an_agent_that_does_not_know_chunks_is_offered_the_last_alone(
    half: Chunked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(half.door), "features", frozenset())
    request = prefill_request(**PROMISED)
    assert not half.promised.wants_all_blocks(request)
