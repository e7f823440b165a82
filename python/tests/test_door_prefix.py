"""What engines keep and find, with agents that can and agents that cannot."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from asyncengines import in_a_loop, refused
from fakeagent import SERVING, WELCOME, FakeAgent
from processes import PATIENCE

from meridian.door import (
    Accept,
    AsyncDoor,
    CacheTerms,
    Control,
    Door,
    DoorError,
    EventKind,
    Find,
    Found,
    Keep,
    Scope,
    _messages,
    new_transfer,
    transfer_of,
)
from meridian.door._frames import frame
from meridian.door._messages import Message

TICKET = b"MRDF\x01" + bytes([7] * 16)
TERMS = CacheTerms(64, 300e-6)
KEEP = Keep(bytes([9] * 16), [1, 2, 3], [[4]], Scope(salt="s"), leg=b"sealed")
FIND = Find([1, 2, 3], present_tokens=1, scope=Scope(salt="s"), within=0.25, token_time=42e-6, leg=b"sealed")


class KeepingAgent:
    """Keeps what it is told and frees it at once; finds two tokens, when it is let."""

    def __init__(self) -> None:
        self.heard: list[Message] = []
        self.declined = threading.Event()
        self.let = threading.Event()
        self.let.set()

    def answer(self, message: Message) -> bytes:
        self.heard.append(message)
        reply = _messages.Reply(request=message.request)
        if isinstance(message, _messages.Keep):
            freed = _messages.Event(kinds=[4], transfers=message.transfer, accepted=[False], problems=[{}])
            return frame(reply) + frame(freed)
        if isinstance(message, _messages.Find):
            self.let.wait(PATIENCE)
            reply.found.tokens, reply.found.ticket, reply.found.reason = 2, TICKET, "miss"
        if isinstance(message, _messages.Accept):
            reply.transfer = transfer_of(message.ticket)
        if isinstance(message, _messages.Cancel):
            assert message.unused_ticket == TICKET
            self.declined.set()
        return frame(reply)


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeAgent]:
    fake = FakeAgent(tmp_path / "door.sock")
    welcome = _messages.Welcome()
    welcome.CopyFrom(WELCOME)
    welcome.features.append("cache")
    welcome.cache.block_tokens, welcome.cache.find_wait_us = 64, 300
    fake.sayings = [frame(welcome) + frame(SERVING)]
    yield fake
    fake.close()


def check(agent: KeepingAgent) -> None:
    """See that everything was said that was meant."""
    keep, find = agent.heard[:2]
    assert keep.leg == find.leg == b"sealed"
    assert (keep.transfer, list(keep.tokens), list(keep.tables[0].blocks)) == (KEEP.transfer, [1, 2, 3], [4])
    assert keep.scope.salt == find.scope.salt == "s"
    assert (list(find.tokens), find.present_tokens, find.deadline_us) == ([1, 2, 3], 1, 250_000)
    assert find.token_ns == 42_000


@pytest.mark.parametrize(("seconds", "ns"), [(0.0, 0), (-1.0, 0), (1e-12, 1), (1e9, (1 << 32) - 1)])
def test_times_that_no_message_has_are_the_nearest_that_it_has(seconds: float, ns: int) -> None:
    assert Find([1], token_time=seconds).message().token_ns == ns


def test_keep_and_find(fake: FakeAgent) -> None:
    agent = KeepingAgent()
    fake.answer = agent.answer
    with Door(fake.path, "e", control=Control()) as door:
        door.wait_serving(PATIENCE)
        assert door.cache_terms == TERMS
        door.keep(KEEP)
        found = door.find(FIND)
        assert found == Found(2, TICKET, "miss")
        check(agent)
        told = [event for event in door.poll_events(PATIENCE) if event.kind is not EventKind.SERVING]
        while not told:
            told = door.poll_events(PATIENCE)
        assert [(event.kind, event.transfer, event.accepted) for event in told] == [
            (EventKind.FREED, KEEP.transfer, False)
        ]
        assert door.accept(Accept(TICKET, [1, 2], [[4]], present_tokens=1)) == bytes([7] * 16)
        door.decline_ticket(TICKET)


def test_an_agent_without(tmp_path: Path) -> None:
    fake = FakeAgent(tmp_path / "door.sock")
    fake.sayings = [frame(WELCOME) + frame(SERVING)]
    try:
        with Door(fake.path, "e", control=Control()) as door:
            door.wait_serving(PATIENCE)
            for ask in (lambda: door.keep(KEEP), lambda: door.find(FIND), lambda: door.cache_terms):
                with pytest.raises(DoorError, match="keeps no prefixes") as error:
                    ask()
                assert error.value.code == "unsupported"
            assert door.serving
    finally:
        fake.close()


@in_a_loop
async def test_keep_and_find_with_asyncio(fake: FakeAgent) -> None:
    agent = KeepingAgent()
    fake.answer = agent.answer
    async with AsyncDoor(fake.path, "e", control=Control()) as door:
        await door.wait_serving(PATIENCE)
        assert door.cache_terms == TERMS
        await door.keep(KEEP)
        assert await door.find(FIND) == Found(2, TICKET, "miss")
        check(agent)
        async for event in door.events():
            if event.kind is EventKind.FREED:
                assert event.transfer == KEEP.transfer
                break


@in_a_loop
async def test_what_is_found_too_late_is_given_back(fake: FakeAgent) -> None:
    agent = KeepingAgent()
    agent.let.clear()
    fake.answer = agent.answer
    async with AsyncDoor(fake.path, "e", control=Control()) as door:
        await door.wait_serving(PATIENCE)
        assert await refused(door.find(FIND, timeout=0.01)) == "timeout"
        agent.let.set()
        assert await asyncio.to_thread(agent.declined.wait, PATIENCE)


def test_the_ticket_of_what_was_found_tells_its_transfer() -> None:
    assert transfer_of(TICKET) == bytes([7] * 16)
    with pytest.raises(ValueError, match="no ticket"):
        transfer_of(TICKET[:-1])
    assert new_transfer() != new_transfer()
