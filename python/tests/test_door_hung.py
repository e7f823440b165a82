"""Agents that hang, or refuse what an engine is: the engine goes on without, and comes back to them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from asyncengines import in_a_loop, refused
from fakeagent import SERVING, WELCOME, FakeAgent
from processes import PATIENCE
from waiting import auntil, until

from meridian.door import (
    AsyncDoor,
    Control,
    Door,
    DoorError,
    Event,
    EventKind,
    Layer,
    Offer,
    Publication,
    _messages,
    _outbox,
    new_transfer,
)
from meridian.door._frames import frame
from meridian.door._messages import Message

REGISTERED = frame(WELCOME) + frame(SERVING)
PUBLICATION = Publication("bf16", [Layer(8, 128)], 16, 64, tp=1)
MUCH = bytes(1 << 20)


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeAgent]:
    fake = FakeAgent(tmp_path / "door.sock")
    fake.sayings = [REGISTERED, REGISTERED]
    yield fake
    fake.close()


@contextlib.contextmanager
def door_at(fake: FakeAgent, answer_timeout: float = 60.0) -> Iterator[Door]:
    with Door(fake.path, "e", control=Control(), answer_timeout=answer_timeout) as door:
        door.wait_serving(PATIENCE)
        assert door.poll_events(PATIENCE) == [Event(EventKind.SERVING)]
        yield door


def an_offer() -> Offer:
    return Offer(new_transfer(), [1], [[0]], layers=1)


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(DoorError) as failed:
        call()
    return failed.value.code


def kinds(door: Door, count: int) -> list[EventKind]:
    told: list[Event] = []
    end = time.monotonic() + PATIENCE
    while len(told) < count and time.monotonic() < end:
        told += door.poll_events(end - time.monotonic())
    return [event.kind for event in told]


def asks_nothing(door: Door) -> None:
    """See that everything is refused at once, and holds nothing."""
    began, offer = time.monotonic(), an_offer()
    assert not door.serving
    assert code_of(lambda: door.write_ticket(offer)) == "not_serving"
    assert code_of(lambda: door.offer_soon(offer)) == "not_serving"
    assert code_of(lambda: door.withdraw_offer(offer.transfer)) == "not_serving"
    door.publish(PUBLICATION)  # it is said to the agent that comes back
    assert time.monotonic() - began < 8
    assert door.poll_events() == []


def test_the_second_question_to_an_agent_that_hangs(
    fake: FakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    with door_at(fake, answer_timeout=4.0) as door, caplog.at_level(logging.WARNING, "meridian.door"):
        with fake.hanging():
            assert code_of(lambda: door.offer(an_offer())) == "no_answer"
            asks_nothing(door)
            assert "has not answered within 4 s" in caplog.text
            fake.answer = ok
        assert kinds(door, 3) == [EventKind.FREED, EventKind.FENCED, EventKind.SERVING]
        assert door.serving


def test_an_agent_that_lets_too_much_wait(fake: FakeAgent) -> None:
    with door_at(fake) as door:
        with fake.hanging():
            first = door.offer_soon(an_offer())
            for number in range(80):
                door.progress(MUCH, number)
            asks_nothing(door)
            assert not first.done(), "it may have been read"
            fake.answer = ok
        door.wait_serving(PATIENCE)


def test_an_agent_that_reads_nothing_for_long(fake: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_outbox, "_STALL_TIMEOUT", 0.1)
    with door_at(fake) as door:
        with fake.hanging():
            for number in range(4):  # more than the socket takes
                door.progress(MUCH, number)
            until_not_serving(door)
            asks_nothing(door)
            fake.answer = ok
        assert kinds(door, 2) == [EventKind.FENCED, EventKind.SERVING]


def test_an_agent_that_loses_its_mind_and_hangs(fake: FakeAgent) -> None:
    fake.sayings[0] += frame(WELCOME)
    with contextlib.closing(Door(fake.path, "e", control=Control())) as door:
        with fake.hanging():
            door.open()
            until_not_serving(door)
            assert kinds(door, 1) == [EventKind.SERVING]
            asks_nothing(door)
            fake.answer = ok
        assert kinds(door, 2) == [EventKind.FENCED, EventKind.SERVING]


def test_an_agent_that_is_not_required_may_refuse_what_an_engine_is(
    fake: FakeAgent, caplog: pytest.LogCaptureFixture
) -> None:
    verdicts = ["busy", "denied", ""]
    fake.answer = lambda request: verdict(request, verdicts.pop(0))
    fake.sayings = [REGISTERED] * 3
    door = Door(fake.path, "e", control=Control())
    door.open(required=False)
    assert kinds(door, 1) == [EventKind.SERVING]
    with caplog.at_level(logging.WARNING, "meridian.door"):
        door.publish(PUBLICATION)
        assert kinds(door, 2) == [EventKind.FENCED, EventKind.SERVING]
    assert [record.message.rpartition(" ")[2] for record in caplog.records] == ["(busy)", "(denied)"]
    assert verdicts == [] and len(fake.hellos) == 3
    door.close()


def test_an_agent_that_is_required_must_not(fake: FakeAgent) -> None:
    fake.answer = lambda request: verdict(request, "busy")
    with door_at(fake) as door:
        assert code_of(lambda: door.publish(PUBLICATION)) == "busy"
        assert door.serving


@in_a_loop
async def test_tasks_ask_an_agent_that_hangs_nothing_more(fake: FakeAgent) -> None:
    async with AsyncDoor(fake.path, "e", control=Control(), answer_timeout=4.0) as door:
        await door.wait_serving(PATIENCE)
        with fake.hanging():
            assert await refused(door.offer(an_offer())) == "no_answer"
            await asks_nothing_more(door)
            fake.answer = ok
        told = [(await anext(door.events())).kind for _ in range(4)]
        assert told == [EventKind.SERVING, EventKind.FREED, EventKind.FENCED, EventKind.SERVING]


@pytest.mark.parametrize("frames", [80, 4], ids=["too much waits", "for long"])
@in_a_loop
async def test_tasks_leave_an_agent_that_reads_nothing(
    fake: FakeAgent, frames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_outbox, "_STALL_TIMEOUT", 0.1 if frames == 4 else 60.0)
    async with AsyncDoor(fake.path, "e", control=Control()) as door:
        await door.wait_serving(PATIENCE)
        with fake.hanging():
            for number in range(frames):
                door.progress(MUCH, number)
            await auntil("it serves no more", lambda: not door.serving)
            await asks_nothing_more(door)
            fake.answer = ok
        told = [(await anext(door.events())).kind for _ in range(3)]
        assert told == [EventKind.SERVING, EventKind.FENCED, EventKind.SERVING]


@in_a_loop
async def test_tasks_have_the_same_patience(fake: FakeAgent) -> None:
    verdicts = ["busy", "denied", ""]
    fake.answer = lambda request: verdict(request, verdicts.pop(0))
    fake.sayings = [REGISTERED] * 3
    door = AsyncDoor(fake.path, "e", control=Control())
    await door.open(required=False)
    await door.wait_serving(PATIENCE)
    await door.publish(PUBLICATION)
    told = [(await anext(door.events())).kind for _ in range(3)]
    assert told == [EventKind.SERVING, EventKind.FENCED, EventKind.SERVING]
    assert verdicts == [] and len(fake.hellos) == 3
    await door.close()


async def asks_nothing_more(door: AsyncDoor) -> None:
    offer = an_offer()
    async with asyncio.timeout(PATIENCE):
        assert not door.serving
        assert code_of(lambda: door.write_ticket(offer)) == "not_serving"
        assert await refused(door.offer(offer)) == "not_serving"
        assert await refused(door.wait_serving(timeout=0.01)) == "not_serving"
        await door.publish(PUBLICATION)


def until_not_serving(door: Door) -> None:
    until("it serves no more", lambda: not door.serving)


def ok(request: Message) -> bytes:
    return verdict(request, "")


def verdict(request: Message, code: str) -> bytes:
    """Answer what wants an answer."""
    if "request" not in request.DESCRIPTOR.fields_by_name:
        return b""
    reply = _messages.Reply(request=request.request)
    if code:
        reply.problem.code, reply.problem.message = code, "not now"
    return frame(reply)
