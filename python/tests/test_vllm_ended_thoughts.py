"""Thoughts that leave while their requests go on."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
from kept_thoughts_world import END, PROMPT, SETTLED, THOUGHT, Pool, World
from vllmworld import BLOCK, CUT, SETTINGS, Request

from meridian.door import DoorError
from meridian.vllm.ended_thoughts import settled_after
from meridian.vllm.scheduler import ConnectorScheduler


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
    assert world.pool.pinned == world.blocks[:6] and world.connector_scheduler.awaits_blocks
    asked.set_result(None)
    world.say(8, 9)
    assert world.pool.pinned == world.blocks[:6] and len(world.kept) == 1
    world.free()
    assert world.connector_scheduler.step().freed == (), "vLLM would take it for a finished request"
    assert world.pool.pinned == [] and not world.connector_scheduler.awaits_blocks
    assert world.connector_scheduler.counters.take() == {"kept_thoughts": 1}


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
    """Of what needs more, as many batches leave as there is room for."""
    world = World(Pool(count=23))
    world.say(*THOUGHT, END, 1, 2)
    assert world.kept == [len(PROMPT) + 2 * BLOCK] and world.pool.pinned == world.blocks[:4]
    world.free()
    world.say(3, 4)
    assert len(world.kept) == 1 and world.pool.pinned == [], "there is never room for the next batch"


def test_of_a_prompt_that_needs_more_its_beginning_leaves() -> None:
    world = World(Pool(count=8))
    world.say(*THOUGHT, END, 1)
    assert world.kept == [2 * BLOCK] and world.pool.pinned == world.blocks[:2]


def test_without_room_for_a_batch_nothing_leaves() -> None:
    world = World(Pool(count=7))
    world.say(*THOUGHT, END, 1)
    assert world.kept == [] and world.pool.pinned == []


def test_blocks_that_are_not_told_are_not_guessed() -> None:
    """A MultiConnector of vLLM 0.25 tells connectors that it did not choose of no blocks."""
    world = World()
    world.connector_scheduler.allocated(world.request, ([],), 0)
    world.say(*THOUGHT, END, 1, 2)
    assert world.kept == []
    world.connector_scheduler.allocated(world.request, (list(world.blocks),), 0)
    world.say(3, 4, 5, 6, 7)
    assert world.kept == [len(PROMPT) + 4 * BLOCK]
    assert world.door.keeps[0][0].tables == [world.blocks[:6]]


def test_a_table_that_is_too_short_for_what_is_computed_says_nothing() -> None:
    world = World()
    world.thoughts._followed["r"].blocks = []
    world.say(*THOUGHT, END, 1, 2)
    assert world.kept == []


def test_what_is_first_seen_with_an_answer_is_not_kept_before_it_is_computed() -> None:
    world = World()
    other = Request("o", PROMPT, None, answer=[*THOUGHT, END, 1])
    blocks = [60 + at for at in range(10)]
    world.connector_scheduler.allocated(other, (blocks,), 0)
    for _ in range(SETTLED):
        world.thoughts.follow("o", len(other.all_token_ids), None, world.connector_scheduler.keep_running)
        assert world.kept == [], "what was under way before may have brought these tokens"
        other.answer.append(7)
    world.thoughts.follow("o", len(other.all_token_ids), None, world.connector_scheduler.keep_running)
    assert world.kept == [len(PROMPT) + 4 * BLOCK]


def test_how_much_may_be_under_way_vllm_says() -> None:
    deep = SimpleNamespace(max_concurrent_batches=3, num_speculative_tokens=5)
    assert settled_after(deep) == 19
    assert settled_after(SimpleNamespace(max_concurrent_batches=3)) == 64


class Copied(Request):
    """A request that counts how often its tokens are looked at from the first on."""

    copies = 0

    @property
    def all_token_ids(self) -> Any:
        of = self

        class Tokens(list[int]):
            def __getitem__(self, at: Any) -> Any:
                of.copies += isinstance(at, slice) and at.start is None
                return super().__getitem__(at)

        return Tokens(super().all_token_ids)


def test_what_the_cell_does_not_keep_is_not_copied() -> None:
    world = World()
    world.thoughts.end("r")
    world.request = Copied("r", PROMPT, None, max_tokens=100)
    world.connector_scheduler.allocated(world.request, (list(world.blocks),), 0)
    world.door.serving = False
    world.say(*THOUGHT, END, 1, 2, 3)
    assert world.request.copies == 0
    world.door.serving = True
    world.say(4)
    assert world.kept == [], "it was asked for a moment ago"
    world.now = 1.0
    world.say(5)
    assert len(world.kept) == 1 and world.request.copies == 1


def test_what_cannot_be_kept_is_tried_again_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    world, asked = World(), []

    def refuse(keep: Any) -> Any:
        asked.append(len(keep.tokens))
        raise DoorError("busy", "too much")

    monkeypatch.setattr(world.door, "keep_soon", refuse)
    first = len(PROMPT) + 4 * BLOCK
    world.say(*THOUGHT, END, 1)
    assert asked == [first]
    world.now = 0.9
    world.say(END, 2, 3)
    assert asked == [first], "that is not another batch"
    world.say(*THOUGHT[: 2 * BLOCK], END, 7, 8)
    assert len(asked) == 2 and asked[1] > first
    world.now = 2.0
    world.say(9, 10)
    assert len(asked) == 3 and world.pool.pinned == []


def test_pins_are_given_up_soon() -> None:
    world = World()
    world.say(*THOUGHT, END, 1)
    transfer = world.door.keeps[0][0].transfer
    world.door.keeps[0][1].set_result(None)
    world.connector_scheduler.finished(world.request, (world.blocks,), complete=False)
    world.now = 1.9
    world.connector_scheduler.step()
    assert world.door.withdrawn == []
    world.now = 2.0
    world.connector_scheduler.step()
    assert world.door.withdrawn == [transfer] and world.pool.pinned, "the agent may still read them"
    world.free()
    world.connector_scheduler.step()
    assert world.pool.pinned == [] and world.connector_scheduler.counters.take() == {}


def test_what_is_kept_at_the_end_is_looked_at_where_the_cell_keeps_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreadable(request: Any) -> Any:
        raise ValueError("a thought's end that is none")

    monkeypatch.setattr("meridian.vllm.scheduler.kept_of", unreadable)
    world = World()
    assert world.connector_scheduler.finished(world.request, (world.blocks,), complete=True) == (False, None)
    monkeypatch.setattr("meridian.vllm.scheduler.kept_of", lambda request: pytest.fail("it keeps nothing"))
    world.door.serving = False
    assert world.connector_scheduler.finished(world.request, (world.blocks,), complete=True) == (False, None)
    alone = ConnectorScheduler(dataclasses.replace(SETTINGS, cache=False), CUT, produces=True, consumes=True)
    assert alone.finished(world.request, (world.blocks,), complete=True) == (False, None)


@pytest.mark.parametrize("refused", [DoorError("busy", "too much"), DoorError("no_answer", "it hangs")])
def test_what_the_agent_does_not_take_is_unpinned(refused: DoorError) -> None:
    world = World()
    world.say(*THOUGHT, END, 1)
    world.door.keeps[0][1].set_exception(refused)
    world.say(2)
    if refused.code == "no_answer":
        assert world.pool.pinned, "it may still read them"
        world.free()
        world.connector_scheduler.step()
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
    assert world.connector_scheduler.finished(world.request, (world.blocks,), complete=False) == (False, None)
    assert world.pool.pinned == world.blocks[:6]
    world.free()
    world.connector_scheduler.step()
    assert world.pool.pinned == []


def test_what_is_computed_again_is_not_kept_before_it_is_there() -> None:
    world = World(pressure=True)
    world.say(*THOUGHT, END, 1)
    world.lose_blocks()
    world.pool.usage = 0.9
    known = len(world.request.all_token_ids)
    world.blocks = [60 + at for at in range(known // BLOCK + 1)]
    world.connector_scheduler.allocated(world.request, (list(world.blocks),), 0)
    world.follow(known - 1)  # a step is under way that computes all of it
    assert world.kept == []
    world.say(2, 3, 4, 5, 6)
    assert world.kept == [len(PROMPT) + 4 * BLOCK]
    assert world.door.keeps[0][0].tables == [world.blocks[:6]]
