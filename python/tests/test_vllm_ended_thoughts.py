"""Thoughts that leave while their requests go on, and what a request that lost its blocks gets back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from vllmworld import BLOCK, CUT, SETTINGS, FakeDoor, Request, decode_params, found_ticket

from meridian.door import CacheTerms, DoorError, Event, EventKind, Found
from meridian.vllm.ended_thoughts import EndedThoughts
from meridian.vllm.scheduler import SchedulerHalf

END = 99
PROMPT = list(range(2 * BLOCK))
THOUGHT = [50 + at for at in range(5 * BLOCK)]
"""With its end five blocks, and a token of a sixth."""
BATCH = 2
TRANSFER = bytes(range(1, 17))


class Pool:
    """vLLM's blocks, of which a test counts the references."""

    def __init__(self, count: int = 100, usage: float = 0.5) -> None:
        self.blocks: Sequence[int] = range(count)
        self.num_gpu_blocks = count
        self.usage = usage
        self.free = count
        self.references: dict[int, int] = {}

    def touch(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self.references[block] = self.references.get(block, 0) + 1

    def free_blocks(self, ordered_blocks: Sequence[int]) -> None:
        for block in ordered_blocks:
            self.references[block] -= 1

    def get_usage(self) -> float:
        return self.usage

    def get_num_free_blocks(self) -> int:
        return self.free

    @property
    def pinned(self) -> list[int]:
        return sorted(block for block, count in self.references.items() if count)


class World:
    """A half that keeps thoughts, and one request of vLLM."""

    def __init__(self, pool: Pool | None = None, ends: Any = ((END,),), pressure: bool = False) -> None:
        self.now = 0.0
        self.pool = pool or Pool()
        self.half = SchedulerHalf(SETTINGS, CUT, produces=True, consumes=True, clock=lambda: self.now)
        self.door = FakeDoor(cache=CacheTerms(BLOCK, 0.0))
        self.half.attach(self.door)
        self.thoughts = EndedThoughts(
            ends, block_tokens=BLOCK, batch=BATCH, pool=self.pool, under_pressure=pressure
        )
        self.half.keep_thoughts(self.thoughts)
        self.request = Request("r", PROMPT, None, max_tokens=100)
        self.blocks = [20 + at for at in range(2)]
        self.half.allocated(self.request, (list(self.blocks),), 0)

    def say(self, *tokens: int) -> None:
        """Let the request say tokens, a step each."""
        for token in tokens:
            had = len(self.request.all_token_ids) - (1 if self.request.answer else 0)
            new = []
            while len(self.blocks) * BLOCK < len(self.request.all_token_ids) + 1:
                new.append(20 + len(self.blocks))
                self.blocks.append(new[-1])
            self.follow(had, new)
            self.half.step(computes={"r": 1})
            self.request.answer.append(token)

    def follow(self, had: int, new: Sequence[int] = ()) -> None:
        """Let a step begin that finds so many tokens computed, and gets the request more blocks."""
        self.thoughts.follow("r", had, (new,) if new else None, self.half.keep_running)

    @property
    def kept(self) -> list[int]:
        """Return how many tokens each Keep had."""
        return [len(list(keep.tokens)) for keep, _ in self.door.keeps]

    def free(self) -> None:
        self.half.happened(Event(EventKind.FREED, self.door.keeps[-1][0].transfer, False))


def test_a_thought_leaves_at_its_end_in_whole_batches() -> None:
    world = World()
    world.say(*THOUGHT)
    assert world.kept == [], "it goes on"
    world.say(END)
    assert world.kept == [], "that is not computed yet"
    world.say(7)
    assert world.kept == [len(PROMPT) + 4 * BLOCK], "of five blocks two batches"
    keep, asked = world.door.keeps[0]
    assert list(keep.tokens) == [*PROMPT, *THOUGHT][: world.kept[0]]
    assert keep.tables == [world.blocks[:6]] and keep.request_id == "r"
    assert world.pool.pinned == world.blocks[:6] and world.half.awaits_blocks
    asked.set_result(None)
    world.say(8, 9)
    assert world.pool.pinned == world.blocks[:6] and len(world.kept) == 1
    world.free()
    assert world.half.step().freed == (), "vLLM would take it for a finished request"
    assert world.pool.pinned == [] and not world.half.awaits_blocks
    assert world.half.counters.take() == {"kept_thoughts": 1}


def test_a_short_thought_stays() -> None:
    world = World()
    world.say(*THOUGHT[: 2 * BLOCK - 2], END, 1, 2, 3)
    assert world.kept == []


def test_a_second_thought_leaves_too() -> None:
    world = World()
    world.say(*THOUGHT, END, 1)
    world.door.keeps[-1][1].set_result(None)
    world.free()
    world.say(*THOUGHT, END, 2)
    first = len(PROMPT) + 4 * BLOCK
    assert world.kept == [first, first + 6 * BLOCK]
    assert world.pool.pinned == world.blocks[:12]


def test_an_end_of_several_tokens() -> None:
    world = World(ends=((4, END), (5, 6, END)))
    world.say(*THOUGHT, 6, END, 4, 1, END)
    assert world.kept == []
    world.say(5, 6, END, 1)
    assert len(world.kept) == 1


def test_an_end_in_the_prompt_ends_nothing() -> None:
    world = World(ends=((PROMPT[-1],), (PROMPT[-1], THOUGHT[0])))
    world.say(*THOUGHT, 1, 2)
    assert world.kept == []


def test_under_pressure_alone() -> None:
    world = World(pressure=True)
    world.say(*THOUGHT, END, 1, 2)
    assert world.kept == []
    world.pool.usage = 0.9
    world.say(3)
    assert world.kept == [len(PROMPT) + 4 * BLOCK]


def test_no_more_is_pinned_than_a_share_of_all() -> None:
    world = World(Pool(count=23))
    world.say(*THOUGHT, END, 1, 2)
    assert world.kept == [] and world.pool.pinned == []


@pytest.mark.parametrize("refused", [DoorError("busy", "too much"), DoorError("no_answer", "it hangs")])
def test_what_the_agent_does_not_take_is_unpinned(refused: DoorError) -> None:
    world = World()
    world.say(*THOUGHT, END, 1)
    world.door.keeps[0][1].set_exception(refused)
    world.say(2)
    if refused.code == "no_answer":
        assert world.pool.pinned, "it may still read them"
        world.free()
        world.half.step()
    assert world.pool.pinned == []
    world.say(3, 4)
    assert len(world.kept) == 1, "it is not tried without end"


def test_an_agent_that_is_away_costs_nothing() -> None:
    world = World()
    world.door.serving = False
    world.say(*THOUGHT, END, 1, 2)
    assert world.kept == [] and world.pool.pinned == []


def test_pins_outlive_the_request() -> None:
    world = World()
    world.say(*THOUGHT, END, 1)
    assert world.half.finished(world.request, (world.blocks,), complete=False) == (False, None)
    assert world.pool.pinned == world.blocks[:6]
    world.free()
    world.half.step()
    assert world.pool.pinned == []


def lose_blocks(world: World) -> None:
    world.request.num_preemptions += 1
    world.request.num_computed_tokens = 0


def test_a_request_that_lost_its_blocks_finds_them_again() -> None:
    world = World()
    world.say(*THOUGHT, END, 1)
    lose_blocks(world)
    assert world.half.matched_tokens(world.request, BLOCK) == (None, False)
    find, asked = world.door.finds[-1]
    assert list(find.tokens) == [*PROMPT, *THOUGHT, END], "the last token is computed here"
    asked.set_result(Found(6 * BLOCK, found_ticket(TRANSFER)))
    assert world.half.matched_tokens(world.request, BLOCK) == (5 * BLOCK, True)
    again = [60 + at for at in range(8)]
    world.half.allocated(world.request, (again,), 5 * BLOCK)
    accept, taken = world.door.accepts[0]
    assert list(accept.tokens) == [*PROMPT, *THOUGHT][: 6 * BLOCK] and accept.present_tokens == BLOCK
    assert accept.tables == [again[:6]]
    taken.set_result(TRANSFER)
    world.half.happened(Event(EventKind.READY, TRANSFER, True))
    assert world.half.step().landed == ("r",)
    world.half.reported(["r"])
    assert world.half.counters.take() == {"found_tokens": 5 * BLOCK, "recalled_tokens": 5 * BLOCK}
    assert world.half.matched_tokens(world.request, 0) == (0, False)
    world.half.step(computes={"r": 1})
    assert world.half.matched_tokens(world.request, 0) == (0, False), "once for each time"
    lose_blocks(world)
    assert world.half.matched_tokens(world.request, 0) == (None, False)


def test_nothing_found_is_an_answer_until_blocks_are_lost_again() -> None:
    world = World()
    world.say(*THOUGHT, END, 1)
    lose_blocks(world)
    assert world.half.matched_tokens(world.request, 0) == (None, False)
    world.door.finds[-1][1].set_result(Found())
    for world.now in (0.0, 10.0):
        assert world.half.matched_tokens(world.request, 0) == (0, False) and len(world.door.finds) == 1
    lose_blocks(world)
    assert world.half.matched_tokens(world.request, 0) == (None, False) and len(world.door.finds) == 2


def test_an_agent_that_hangs_delays_a_request_for_a_moment() -> None:
    world = World()
    world.say(*THOUGHT, END, 1)
    lose_blocks(world)
    assert world.half.matched_tokens(world.request, 0) == (None, False)
    world.now = 1.2
    assert world.half.matched_tokens(world.request, 0) == (0, False) and len(world.door.finds) == 1
    world.now = 60.0
    assert world.half.matched_tokens(world.request, 0) == (0, False) and len(world.door.finds) == 1


def test_what_was_found_and_has_no_room_is_given_up() -> None:
    """vLLM asks again and again, as it finds no room for what is to come."""
    world = World()
    world.say(*THOUGHT, END, 1)
    lose_blocks(world)
    answers = []
    for step in range(60):
        world.now = step / 10
        answers.append(world.half.matched_tokens(world.request, 0))
        for number, (_, asked) in enumerate(world.door.finds):
            if not asked.done():
                asked.set_result(Found(6 * BLOCK, found_ticket(bytes([number + 1] * 16))))
    assert (6 * BLOCK, True) in answers and answers[-1] == (0, False) and answers[41] == (0, False)
    assert len(world.door.finds) == 2, "a ticket is good for two seconds, and four are enough"


def found_again(world: World, request: Request, transfer: bytes) -> None:
    """Let a request find six blocks of what it lost, and wait for them."""
    assert world.half.matched_tokens(request, 0) == (None, False)
    world.door.finds[-1][1].set_result(Found(6 * BLOCK, found_ticket(transfer)))
    assert world.half.matched_tokens(request, 0) == (6 * BLOCK, True)
    world.half.allocated(request, (list(range(40, 49)),), 6 * BLOCK)


def test_one_comes_back_at_a_time() -> None:
    world = World()
    world.say(*THOUGHT, END, 1)
    lose_blocks(world)
    other = Request("o", PROMPT, None, answer=[*THOUGHT, END], num_preemptions=1)
    fresh = Request("f", list(range(500, 520)), None)
    found_again(world, world.request, TRANSFER)
    for now in (0.0, 30.0):
        world.now = now
        assert world.half.matched_tokens(other, 0) == (0, False), "its blocks would be in the way"
        assert world.half.matched_tokens(fresh, 0) == (0, False), "as would those of a prompt"
    assert len(world.door.finds) == 1
    world.half.happened(Event(EventKind.READY, TRANSFER, True))
    world.half.step(computes={})
    world.half.reported(["r"])
    assert world.half.matched_tokens(other, 0) == (0, False), "it has its blocks, and does not run"
    world.half.allocated(world.request, (list(range(40, 50)),), 0)
    assert len(world.door.accepts) == 1, "what is there is not asked for again"
    world.half.step(computes={"r": 1})
    assert world.half.matched_tokens(fresh, 0) == (None, False)
    found_again(world, other, bytes(range(2, 18)))
    assert len(world.door.accepts) == 2


def test_the_next_one_asks_when_the_first_is_gone_or_silent() -> None:
    world = World()
    world.say(*THOUGHT, END, 1)
    lose_blocks(world)
    other = Request("o", PROMPT, None, answer=[*THOUGHT, END], num_preemptions=1)
    third = Request("t", PROMPT, None, answer=[*THOUGHT, END], num_preemptions=1)
    assert world.half.matched_tokens(world.request, 0) == (None, False)
    assert world.half.matched_tokens(other, 0) == (0, False)
    world.half.finished(world.request, ([],), complete=False)
    assert world.half.matched_tokens(other, 0) == (None, False)
    world.now = 5.0  # vLLM does not ask for it any more: it may be paused
    assert world.half.matched_tokens(third, 0) == (None, False)


def test_without_room_for_all_of_it_a_request_is_computed() -> None:
    world = World()
    world.say(*THOUGHT, END, 1)
    lose_blocks(world)
    needs = len(world.request.all_token_ids) // BLOCK + 1
    world.pool.free = needs + 100 // 8 - 1
    assert world.half.matched_tokens(world.request, 0) == (0, False) and not world.door.finds
    world.pool.free += 1
    assert world.half.matched_tokens(world.request, 0) == (None, False)
    world.door.finds[-1][1].set_result(Found(6 * BLOCK, found_ticket(TRANSFER)))
    world.pool.free -= 1  # others have grown meanwhile
    assert world.half.matched_tokens(world.request, 0) == (0, False)
    world.half.allocated(world.request, (list(range(40, 49)),), 0)
    world.half.step()
    assert world.door.accepts == [] and len(world.door.declined) == 1, "its ticket goes back"


def test_where_no_thoughts_are_kept_nothing_is_asked_for_again() -> None:
    world = World()
    world.half.thoughts = None
    world.say(*THOUGHT, END, 1)
    handed = Request("d", PROMPT, decode_params(TRANSFER, PROMPT), answer=[*THOUGHT, END])
    assert world.half.matched_tokens(handed, 0) == (len(PROMPT), True)
    world.half.allocated(handed, (world.blocks,), len(PROMPT))
    handed.num_preemptions = 1
    assert world.half.matched_tokens(handed, 0) == (0, False) and world.door.finds == []
    world.request.num_preemptions = 1
    assert world.half.matched_tokens(world.request, 0) == (None, False)
    assert list(world.door.finds[-1][0].tokens) == PROMPT[:-1], "the prompt alone, as before"


def test_a_ticket_is_not_used_twice() -> None:
    """Who came with a ticket and lost its blocks looks for them in the cell's cache."""
    world = World()
    handed = Request("d", PROMPT, decode_params(TRANSFER, PROMPT), answer=[*THOUGHT, END])
    assert world.half.matched_tokens(handed, 0) == (len(PROMPT), True)
    world.half.allocated(handed, (world.blocks,), len(PROMPT))
    world.half.happened(Event(EventKind.READY, TRANSFER, True))
    world.half.step()
    world.half.reported(["d"])
    handed.num_preemptions = 1
    assert world.half.matched_tokens(handed, 0) == (None, False)
    assert list(world.door.finds[-1][0].tokens) == [*PROMPT, *THOUGHT]


def test_what_is_computed_again_is_not_kept_before_it_is_there() -> None:
    world = World(pressure=True)
    world.say(*THOUGHT, END, 1)
    lose_blocks(world)
    world.pool.usage = 0.9
    known = len(world.request.all_token_ids)
    world.blocks = [60 + at for at in range(known // BLOCK + 1)]
    world.half.allocated(world.request, (list(world.blocks),), 0)
    world.follow(known - 1)  # a step is under way that computes all of it
    assert world.kept == []
    world.say(2, 3, 4, 5, 6)
    assert world.kept == [len(PROMPT) + 4 * BLOCK]
    assert world.door.keeps[0][0].tables == [world.blocks[:6]]
