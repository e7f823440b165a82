"""What a request that has lost its blocks gets back from the cell's cache."""

from __future__ import annotations

from kept_thoughts_world import END, PROMPT, THOUGHT, TRANSFER, World
from vllmworld import BLOCK, Request, decode_params, found_ticket

from meridian.door import Event, EventKind, Found


def test_a_request_that_lost_its_blocks_finds_them_again() -> None:
    world = World()
    world.say(*THOUGHT, END, 1)
    world.lose_blocks()
    assert world.connector_scheduler.matched_tokens(world.request, BLOCK) == (None, False)
    find, asked = world.door.finds[-1]
    assert list(find.tokens) == [*PROMPT, *THOUGHT, END], "the last token is computed here"
    asked.set_result(Found(6 * BLOCK, found_ticket(TRANSFER)))
    assert world.connector_scheduler.matched_tokens(world.request, BLOCK) == (5 * BLOCK, True)
    again = [60 + at for at in range(8)]
    world.connector_scheduler.allocated(world.request, (again,), 5 * BLOCK)
    accept, taken = world.door.accepts[0]
    assert list(accept.tokens) == [*PROMPT, *THOUGHT][: 6 * BLOCK] and accept.present_tokens == BLOCK
    assert accept.tables == [again[:6]]
    taken.set_result(TRANSFER)
    world.connector_scheduler.happened(Event(EventKind.READY, TRANSFER, True))
    assert world.connector_scheduler.step().landed == ("r",)
    world.connector_scheduler.reported(["r"])
    assert world.connector_scheduler.counters.take() == {
        "found_tokens": 5 * BLOCK,
        "recalled_tokens": 5 * BLOCK,
    }
    assert world.connector_scheduler.matched_tokens(world.request, 0) == (0, False)
    world.connector_scheduler.step(computes={"r": 1})
    assert world.connector_scheduler.matched_tokens(world.request, 0) == (0, False), "once for each time"
    world.lose_blocks()
    assert world.connector_scheduler.matched_tokens(world.request, 0) == (None, False)


def test_nothing_found_is_an_answer_until_blocks_are_lost_again() -> None:
    world = World()
    world.say(*THOUGHT, END, 1)
    world.lose_blocks()
    assert world.connector_scheduler.matched_tokens(world.request, 0) == (None, False)
    world.door.finds[-1][1].set_result(Found())
    for world.now in (0.0, 10.0):
        assert (
            world.connector_scheduler.matched_tokens(world.request, 0) == (0, False)
            and len(world.door.finds) == 1
        )
    world.lose_blocks()
    assert (
        world.connector_scheduler.matched_tokens(world.request, 0) == (None, False)
        and len(world.door.finds) == 2
    )


def test_an_agent_that_hangs_delays_a_request_for_a_moment() -> None:
    world = World()
    world.say(*THOUGHT, END, 1)
    world.lose_blocks()
    assert world.connector_scheduler.matched_tokens(world.request, 0) == (None, False)
    world.now = 1.2
    assert (
        world.connector_scheduler.matched_tokens(world.request, 0) == (0, False)
        and len(world.door.finds) == 1
    )
    world.now = 60.0
    assert (
        world.connector_scheduler.matched_tokens(world.request, 0) == (0, False)
        and len(world.door.finds) == 1
    )


def test_what_was_found_and_has_no_room_is_given_up() -> None:
    """vLLM asks again and again, as it finds no room for what is to come."""
    world = World()
    world.say(*THOUGHT, END, 1)
    world.lose_blocks()
    answers = []
    for step in range(60):
        world.now = step / 10
        answers.append(world.connector_scheduler.matched_tokens(world.request, 0))
        for number, (_, asked) in enumerate(world.door.finds):
            if not asked.done():
                asked.set_result(Found(6 * BLOCK, found_ticket(bytes([number + 1] * 16))))
    assert (6 * BLOCK, True) in answers and answers[-1] == (0, False) and answers[41] == (0, False)
    assert len(world.door.finds) == 2, "a ticket is good for two seconds, and four are enough"


def found_again(world: World, request: Request, transfer: bytes) -> None:
    """Let a request find six blocks of what it lost, and wait for them."""
    assert world.connector_scheduler.matched_tokens(request, 0) == (None, False)
    world.door.finds[-1][1].set_result(Found(6 * BLOCK, found_ticket(transfer)))
    assert world.connector_scheduler.matched_tokens(request, 0) == (6 * BLOCK, True)
    world.connector_scheduler.allocated(request, (list(range(40, 49)),), 6 * BLOCK)


def test_one_comes_back_at_a_time() -> None:
    world = World()
    world.say(*THOUGHT, END, 1)
    world.lose_blocks()
    other = Request("o", PROMPT, None, answer=[*THOUGHT, END], num_preemptions=1)
    fresh = Request("f", list(range(500, 520)), None)
    found_again(world, world.request, TRANSFER)
    for now in (0.0, 3.9):
        world.now = now
        assert world.connector_scheduler.matched_tokens(other, 0) == (0, False), (
            "its blocks would be in the way"
        )
        assert world.connector_scheduler.matched_tokens(fresh, 0) == (0, False), "as would those of a prompt"
    assert len(world.door.finds) == 1
    world.connector_scheduler.happened(Event(EventKind.READY, TRANSFER, True))
    world.connector_scheduler.step(computes={})
    world.connector_scheduler.reported(["r"])
    assert world.connector_scheduler.matched_tokens(other, 0) == (0, False), (
        "it has its blocks, and does not run"
    )
    world.connector_scheduler.allocated(world.request, (list(range(40, 50)),), 0)
    assert len(world.door.accepts) == 1, "what is there is not asked for again"
    world.connector_scheduler.step(computes={"r": 1})
    assert world.connector_scheduler.matched_tokens(fresh, 0) == (None, False)
    found_again(world, other, bytes(range(2, 18)))
    assert len(world.door.accepts) == 2


def test_prompts_do_not_wait_long_for_one_that_does_not_run() -> None:
    world = World()
    world.say(*THOUGHT, END, 1)
    world.lose_blocks()
    world.now = 10.0
    found_again(world, world.request, TRANSFER)
    other = Request("o", PROMPT, None, answer=[*THOUGHT, END], num_preemptions=1)
    fresh = Request("f", list(range(500, 520)), None)
    world.now = 13.9
    assert world.connector_scheduler.matched_tokens(fresh, 0) == (0, False)
    world.now = 14.0
    assert world.connector_scheduler.matched_tokens(fresh, 0) == (None, False)
    assert world.connector_scheduler.matched_tokens(other, 0) == (0, False), (
        "two could wait for each other for ever"
    )


def test_the_next_one_asks_when_the_first_is_gone_or_silent() -> None:
    world = World()
    world.say(*THOUGHT, END, 1)
    world.lose_blocks()
    other = Request("o", PROMPT, None, answer=[*THOUGHT, END], num_preemptions=1)
    third = Request("t", PROMPT, None, answer=[*THOUGHT, END], num_preemptions=1)
    assert world.connector_scheduler.matched_tokens(world.request, 0) == (None, False)
    assert world.connector_scheduler.matched_tokens(other, 0) == (0, False)
    world.connector_scheduler.finished(world.request, ([],), complete=False)
    assert world.connector_scheduler.matched_tokens(other, 0) == (None, False)
    world.now = 5.0  # vLLM does not ask for it any more: it may be paused
    assert world.connector_scheduler.matched_tokens(third, 0) == (None, False)


def test_without_room_for_all_of_it_a_request_is_computed() -> None:
    world = World()
    world.say(*THOUGHT, END, 1)
    world.lose_blocks()
    needs = len(world.request.all_token_ids) // BLOCK + 1
    world.pool.free = needs + 100 // 8 - 1
    assert world.connector_scheduler.matched_tokens(world.request, 0) == (0, False) and not world.door.finds
    world.pool.free += 1
    assert world.connector_scheduler.matched_tokens(world.request, 0) == (None, False)
    world.door.finds[-1][1].set_result(Found(6 * BLOCK, found_ticket(TRANSFER)))
    world.pool.free -= 1  # others have grown meanwhile
    assert world.connector_scheduler.matched_tokens(world.request, 0) == (0, False)
    world.connector_scheduler.allocated(world.request, (list(range(40, 49)),), 0)
    world.connector_scheduler.step()
    assert world.door.accepts == [] and len(world.door.declined) == 1, "its ticket goes back"


def test_where_no_thoughts_are_kept_nothing_is_asked_for_again() -> None:
    world = World()
    world.connector_scheduler.thoughts = None
    world.say(*THOUGHT, END, 1)
    handed = Request("d", PROMPT, decode_params(TRANSFER, PROMPT), answer=[*THOUGHT, END])
    assert world.connector_scheduler.matched_tokens(handed, 0) == (len(PROMPT), True)
    world.connector_scheduler.allocated(handed, (world.blocks,), len(PROMPT))
    handed.num_preemptions = 1
    assert world.connector_scheduler.matched_tokens(handed, 0) == (0, False) and world.door.finds == []
    world.request.num_preemptions = 1
    assert world.connector_scheduler.matched_tokens(world.request, 0) == (None, False)
    assert list(world.door.finds[-1][0].tokens) == PROMPT[:-1], "the prompt alone, as before"


def test_a_ticket_is_not_used_twice() -> None:
    """Who came with a ticket and lost its blocks looks for them in the cell's cache."""
    world = World()
    handed = Request("d", PROMPT, decode_params(TRANSFER, PROMPT), answer=[*THOUGHT, END])
    assert world.connector_scheduler.matched_tokens(handed, 0) == (len(PROMPT), True)
    world.connector_scheduler.allocated(handed, (world.blocks,), len(PROMPT))
    world.connector_scheduler.happened(Event(EventKind.READY, TRANSFER, True))
    world.connector_scheduler.step()
    world.connector_scheduler.reported(["d"])
    handed.num_preemptions = 1
    assert world.connector_scheduler.matched_tokens(handed, 0) == (None, False)
    assert list(world.door.finds[-1][0].tokens) == [*PROMPT, *THOUGHT]
