"""The asyncio client of the engine door, with real agents: loss, return, deadlines, cancellation."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from asyncengines import AsyncEngine, in_a_loop, refused
from engines import DECODE, PREFILL, TOKENS
from fakeagent import SERVING, WELCOME, FakeAgent
from kvcache import Cut
from processes import PATIENCE, Agent, open_descriptors
from waiting import auntil, unread

from meridian.door import (
    Accept,
    AsyncDoor,
    Control,
    DoorError,
    Event,
    EventKind,
    Offer,
    Rank,
    Scope,
    _messages,
    new_transfer,
    sealed_memfd,
    transfer_of,
)
from meridian.door._frames import frame


@pytest.fixture
def agent(meridian_binary: Path, tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(meridian_binary, tmp_path / "state", "n", "--no-directory")
    yield agent
    agent.stop()


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeAgent]:
    fake = FakeAgent(tmp_path / "door.sock")
    yield fake
    fake.close()


@in_a_loop
async def test_hand_off_between_two_cuts(agent: Agent) -> None:
    async with (
        AsyncEngine(agent.socket, "p", PREFILL) as prefill,
        AsyncEngine(agent.socket, "d", DECODE) as decode,
    ):
        transfer = new_transfer()
        prefill.cut.fill(prefill.memory, len(TOKENS), prefill.table(7))
        ticket = await prefill.offer(transfer, first=7)
        assert transfer_of(ticket) == transfer
        assert await decode.accept(ticket, first=3) == transfer
        assert await decode.until(EventKind.READY) == [Event(EventKind.READY, transfer, accepted=True)]
        decode.cut.check(decode.memory, len(TOKENS), decode.table(3))
        assert await prefill.until(EventKind.FREED) == [Event(EventKind.FREED, transfer)]
        for rank in decode.ranks:
            async with asyncio.timeout(PATIENCE):
                assert [(await anext(rank.events())).kind for _ in range(2)] == [
                    EventKind.SERVING,
                    EventKind.READY,
                ]
        assert await refused(decode.accept(ticket)) == "used"
        assert await refused(decode.accept(b"no ticket")) == "ticket"


@in_a_loop
async def test_an_engine_writes_its_own_tickets_and_tells_of_layers(agent: Agent) -> None:
    async with (
        AsyncEngine(agent.socket, "p", PREFILL) as prefill,
        AsyncEngine(agent.socket, "d", DECODE) as decode,
    ):
        offer = Offer(new_transfer(), TOKENS, [prefill.table(0)], layers=0, scope=Scope(salt="s"))
        prefill.cut.fill(prefill.memory, len(TOKENS), prefill.table(0))
        ticket = prefill.control.write_ticket(offer)
        async with asyncio.TaskGroup() as group:
            group.create_task(prefill.control.offer(offer))
        wanted = Accept(ticket, TOKENS, [decode.table(0)], scope=Scope(salt="s"))
        assert await decode.control.accept(wanted) == offer.transfer
        prefill.control.progress(offer.transfer, 1)
        prefill.control.progress(offer.transfer, 2)
        await decode.until(EventKind.READY)
        decode.cut.check(decode.memory, len(TOKENS), decode.table(0))


@in_a_loop
async def test_what_is_not_wanted_comes_back(agent: Agent) -> None:
    async with (
        AsyncEngine(agent.socket, "p", PREFILL) as prefill,
        AsyncEngine(agent.socket, "d", DECODE) as decode,
    ):
        withdrawn, cancelled, declined = new_transfer(), new_transfer(), new_transfer()
        await prefill.offer(withdrawn)
        await prefill.control.withdraw_offer(withdrawn)
        await prefill.control.withdraw_offer(withdrawn)  # it has ended, which is no error
        await decode.accept(await prefill.offer(cancelled, first=16, layers=0))
        await decode.control.cancel_accept(cancelled)
        ended = await decode.until(EventKind.FAILED, EventKind.FREED)
        assert [event.problem.code for event in ended if event.problem] == ["cancelled", "cancelled"]
        await decode.control.decline_ticket(await prefill.offer(declined, first=32))
        freed = await prefill.until(*[EventKind.FREED] * 3)
        assert {event.transfer for event in freed} == {withdrawn, cancelled, declined}


@in_a_loop
async def test_an_engine_comes_back_with_its_agent(agent: Agent) -> None:
    async with (
        AsyncEngine(agent.socket, "p", PREFILL) as prefill,
        AsyncEngine(agent.socket, "d", DECODE) as decode,
    ):
        offered, accepted = new_transfer(), new_transfer()
        await prefill.offer(offered)
        await decode.accept(await prefill.offer(accepted, first=16, layers=0))
        agent.kill()
        lost = await prefill.until(EventKind.FREED, EventKind.FREED, EventKind.FENCED)
        assert [event.transfer for event in lost] == [offered, accepted, bytes(16)]
        lost = await decode.until(EventKind.FAILED, EventKind.FREED, EventKind.FENCED)
        assert [(event.transfer, event.accepted) for event in lost[:2]] == [(accepted, True)] * 2
        assert {event.problem.code for event in lost if event.problem} == {"gone"}
        assert await refused(prefill.offer(new_transfer())) == "not_serving"
        assert await refused(prefill.control.wait_serving(timeout=0.01)) == "not_serving"
        assert not prefill.control.serving
        agent.start()
        await prefill.control.wait_serving()
        await prefill.until(EventKind.SERVING)
        await decode.until(EventKind.SERVING)
        prefill.cut.fill(prefill.memory, len(TOKENS), prefill.table(1))
        await decode.accept(await prefill.offer(new_transfer(), first=1))
        await decode.until(EventKind.READY)
        decode.cut.check(decode.memory, len(TOKENS), decode.table(0))


@in_a_loop
async def test_a_cancelled_offer_is_taken_back(agent: Agent) -> None:
    async with AsyncEngine(agent.socket, "p", PREFILL) as engine:
        unanswered, answered = new_transfer(), new_transfer()
        with agent.paused():
            offering = asyncio.create_task(engine.offer(unanswered))
            await auntil("it is sent", lambda: unread() > 0)
            offering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await offering
        (freed,) = await engine.until(EventKind.FREED)
        assert freed.transfer == unanswered
        assert await refused(engine.offer(answered, timeout=0)) == "timeout"
        (freed,) = await engine.until(EventKind.FREED)
        assert freed.transfer == answered
        await engine.offer(new_transfer())


@in_a_loop
async def test_a_cancelled_accept_is_taken_back(agent: Agent) -> None:
    async with (
        AsyncEngine(agent.socket, "p", PREFILL) as prefill,
        AsyncEngine(agent.socket, "d", DECODE) as decode,
    ):
        ticket = await prefill.offer(new_transfer(), layers=0)
        forged = ticket[:-1] + bytes([ticket[-1] ^ 1])
        for taken, code in {ticket: "cancelled", forged: "forged"}.items():
            assert await refused(decode.accept(taken, timeout=0)) == "timeout"
            ended = await decode.until(EventKind.FAILED, EventKind.FREED)
            told = {(e.transfer, e.accepted, e.problem and e.problem.code) for e in ended}
            assert told == {(transfer_of(ticket), True, code)}
        await prefill.until(EventKind.FREED)


@in_a_loop
async def test_cancelled_at_any_moment_each_offer_ends_once(agent: Agent) -> None:
    cut = Cut(tp=1, block_tokens=4, blocks=4096)
    async with AsyncEngine(agent.socket, "p", cut) as engine:
        ids = [new_transfer() for _ in range(300)]
        offering = [asyncio.create_task(engine.offer(id, 10 * n)) for n, id in enumerate(ids)]
        for tick in range(len(ids)):
            await asyncio.sleep(0)
            if tick % 3:  # what is due next has no answer yet, or one that its task has not seen
                next(filter(lambda task: not task.done(), offering), offering[0]).cancel()
        tickets = await asyncio.gather(*offering, return_exceptions=True)
        told = dict(zip(ids, map(type, tickets), strict=True))
        # So many at once may be more than the agent allows, or not, as it keeps up.
        always = {bytes, asyncio.CancelledError}
        assert always <= set(told.values()) <= always | {DoorError}
        given_up = {id for id in ids if told[id] is asyncio.CancelledError}
        freed = await engine.until(*[EventKind.FREED] * len(given_up))
        assert {event.transfer for event in freed} == given_up
        kept = [id for id in ids if told[id] is bytes]
        await asyncio.gather(*map(engine.control.withdraw_offer, kept))
        freed = await engine.until(*[EventKind.FREED] * len(kept))
        assert {event.transfer for event in freed} == set(kept)


@in_a_loop
async def test_an_agent_that_does_not_answer(agent: Agent) -> None:
    async with AsyncEngine(agent.socket, "e", PREFILL, answer_timeout=4.0) as engine:
        transfer = new_transfer()
        with agent.paused():
            assert await refused(engine.offer(transfer)) == "no_answer"
            # A stopped agent may still write: the blocks stay out until the connection ends.
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await anext(engine.events)
            assert await refused(engine.offer(new_transfer())) == "not_serving"
        freed, _, _ = await engine.until(EventKind.FREED, EventKind.FENCED, EventKind.SERVING)
        assert freed.transfer == transfer


@in_a_loop
async def test_those_who_ask_wait_while_much_is_to_be_sent(agent: Agent) -> None:
    async with AsyncEngine(agent.socket, "e", PREFILL) as engine:
        with agent.paused():
            for number in range(20):  # more than the socket takes
                engine.control.progress(bytes(1 << 20), number)
            never_sent = new_transfer()
            assert await refused(engine.offer(never_sent, timeout=0.05)) == "timeout"
            (freed,) = await engine.until(EventKind.FREED)
            assert (freed.transfer, freed.problem and freed.problem.code) == (never_sent, "cancelled")
            offering = [asyncio.create_task(engine.offer(new_transfer(), 10 * n)) for n in range(3)]
        assert all(await asyncio.gather(*offering))


@in_a_loop
async def test_an_agent_that_never_reads_is_left(agent: Agent) -> None:
    async with AsyncEngine(agent.socket, "e", PREFILL) as engine:
        with agent.paused():
            for number in range(80):
                engine.control.progress(bytes(1 << 20), number)
        await engine.until(EventKind.FENCED, EventKind.SERVING)


@in_a_loop
async def test_events_that_are_not_taken_bound_what_is_begun(agent: Agent) -> None:
    async with AsyncEngine(agent.socket, "e", PREFILL, max_events=3) as engine:
        ids = [new_transfer() for _ in range(3)]
        for n, id in enumerate(ids):
            await engine.offer(id, 10 * n)
        assert await refused(engine.offer(new_transfer(), 30)) == "busy"
        agent.kill()
        await auntil("it serves no more", lambda: not engine.control.serving)
        agent.start()
        with pytest.raises(DoorError):  # four events wait, so it is not registered again
            await engine.control.wait_serving(timeout=0.5)
        await engine.until(*[EventKind.FREED] * 3)
        await engine.control.wait_serving()
        await engine.until(EventKind.FENCED, EventKind.SERVING)
        await engine.offer(new_transfer())


@in_a_loop
async def test_close_waits_until_the_memory_is_quiet(agent: Agent) -> None:
    async with AsyncEngine(agent.socket, "e", PREFILL) as engine:
        transfer = new_transfer()
        await engine.offer(transfer)
        with agent.paused():
            assert await refused(engine.control.close(timeout=0.2)) == "held"
            closing = asyncio.create_task(engine.control.close())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
        await engine.control.close()
        told = [(event.kind, event.transfer) async for event in engine.events]
        assert told == [(EventKind.FREED, transfer), (EventKind.FENCED, bytes(16))]
        assert await refused(engine.offer(new_transfer())) == "closed"
        assert await refused(engine.control.wait_serving()) == "closed"
        assert await refused(engine.control.publish(PREFILL.publication())) == "closed"
        assert await refused(engine.control.open()) == "order"
        await engine.control.close()


@in_a_loop
async def test_an_agent_may_come_later(meridian_binary: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    control = AsyncDoor(state / "door-n.sock", "e", control=Control())
    assert await refused(control.open()) == "lost"
    control = AsyncDoor(state / "door-n.sock", "e", control=Control())
    rank = AsyncDoor(state / "door-n.sock", "e", rank=Rank(0, 1))
    fd = sealed_memfd(PREFILL.rank_bytes)
    await control.publish(PREFILL.publication())  # also before it is open
    await control.open(required=False)
    await rank.open(required=False)
    await rank.lend_memfd(fd)
    os.close(fd)
    assert await refused(control.offer(Offer(new_transfer(), [1], [[0]], layers=2))) == "not_serving"
    agent = Agent(meridian_binary, state, "n", "--no-directory")
    await control.wait_serving()
    await control.close()
    await rank.close()
    agent.stop()


@in_a_loop
async def test_what_cannot_be_lent_is_not_said_again(agent: Agent) -> None:
    async with (
        AsyncDoor(agent.socket, "e", control=Control()) as control,
        AsyncDoor(agent.socket, "e", rank=Rank(0, 1)) as rank,
    ):
        fd = sealed_memfd(PREFILL.rank_bytes)
        assert await refused(rank.lend_memfd(fd, 1)) == "size"
        assert await refused(rank.lend_borrowed(8, 4096)) == "denied"
        await control.publish(PREFILL.publication())
        with agent.paused():
            assert await refused(rank.lend_memfd(fd, timeout=0.05)) == "timeout"  # it is said all the same
        os.close(fd)
        await control.wait_serving()
        agent.kill()
        await auntil("it serves no more", lambda: not control.serving)
        agent.start()
        await control.wait_serving()


@in_a_loop
async def test_one_who_waits_for_an_event_may_be_cancelled(agent: Agent) -> None:
    async with AsyncEngine(agent.socket, "e", PREFILL) as engine:
        waiting = [asyncio.create_task(_next(engine)) for _ in range(2)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        transfer = new_transfer()
        await engine.offer(transfer)
        await engine.control.withdraw_offer(transfer)
        assert await asyncio.wait_for(waiting[1], PATIENCE) == Event(
            EventKind.FREED, transfer, problem=waiting[1].result().problem
        )
        assert waiting[0].cancelled()


async def _next(engine: AsyncEngine) -> Event:
    return await anext(engine.events)


@in_a_loop
async def test_a_cancelled_open_leaves_nothing(agent: Agent) -> None:
    with agent.paused():
        door = AsyncDoor(agent.socket, "e", control=Control())
        opening = asyncio.create_task(door.open())
        await auntil("it is sent", lambda: unread() > 0)
        opening.cancel()
        await asyncio.wait([opening], timeout=PATIENCE)
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert [event async for event in door.events()] == []


def test_a_loop_that_ends_takes_an_open_door_with_it(agent: Agent) -> None:
    async def forget() -> AsyncDoor:
        door = AsyncDoor(agent.socket, "e", control=Control())
        await door.open()
        return door

    before = open_descriptors()
    door = asyncio.run(forget())
    assert open_descriptors() == before
    with pytest.raises(DoorError, match="closed"):
        door.write_ticket(Offer(new_transfer(), [1], [[0]], layers=2))


@pytest.mark.parametrize(
    ("saying", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "malformed"),
        (frame(_messages.Reply(request=1)), "malformed"),
        (frame(_messages.Welcome(version=2)), "version"),
    ],
    ids=["another protocol", "no welcome", "another version"],
)
@in_a_loop
async def test_an_agent_that_is_none(fake: FakeAgent, saying: bytes, code: str) -> None:
    fake.sayings = [saying]
    assert await refused(AsyncDoor(fake.path, "e", control=Control()).open()) == code


@pytest.mark.parametrize(
    "nonsense",
    [frame(_messages.Step()), frame(WELCOME), frame(_messages.Event(kinds=[1], transfers=bytes(17)))],
    ids=["an engine's frame", "a second welcome", "columns of different lengths"],
)
@in_a_loop
async def test_an_agent_that_loses_its_mind(fake: FakeAgent, nonsense: bytes) -> None:
    fake.sayings = [frame(WELCOME) + frame(SERVING) + nonsense, frame(WELCOME) + frame(SERVING)]
    async with AsyncDoor(fake.path, "e", control=Control(role="decode")) as door:
        told = [(await anext(door.events())).kind for _ in range(3)]
        assert told == [EventKind.SERVING, EventKind.FENCED, EventKind.SERVING]
    assert [event.kind async for event in door.events()] == [EventKind.FENCED]
    assert {hello.control.role for hello in fake.hellos} == {"decode"}


def test_a_door_must_be_able_to_keep_an_event(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="max_events"):
        AsyncDoor(tmp_path / "door.sock", "e", control=Control(), max_events=0)
    with pytest.raises(ValueError, match="control"):
        AsyncDoor(tmp_path / "door.sock", "e")
