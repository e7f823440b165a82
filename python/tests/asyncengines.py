"""Engines on asyncio that tests run in their own loop."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import mmap
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from engines import TOKENS
from kvcache import Cut, Memory
from processes import PATIENCE, open_descriptors

from meridian.door import Accept, AsyncDoor, Control, DoorError, Event, EventKind, Offer, Rank, sealed_memfd


class AsyncEngine:
    """An engine whose scheduler and ranks are all in this loop."""

    def __init__(self, socket: Path, name: str, cut: Cut, **options: Any) -> None:
        self.cut = cut
        self.memory: list[Memory] = []
        self._stack = contextlib.AsyncExitStack()
        self.control = AsyncDoor(socket, name, control=Control(role="both", model="m"), **options)
        self.ranks = [AsyncDoor(socket, name, rank=Rank(index, cut.tp)) for index in range(cut.tp)]
        self.events = self.control.events()

    async def __aenter__(self) -> AsyncEngine:
        async with contextlib.AsyncExitStack() as undo:
            for door in (self.control, *self.ranks):
                await undo.enter_async_context(door)
            for door in self.ranks:
                fd = sealed_memfd(self.cut.rank_bytes)
                memory = mmap.mmap(fd, self.cut.rank_bytes)
                undo.callback(memory.close)
                self.memory.append(memory)
                await door.lend_memfd(fd)
                os.close(fd)
            await self.control.publish(self.cut.publication())
            await self.until(EventKind.SERVING)
            self._stack = undo.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def table(self, first: int) -> list[int]:
        return self.cut.table(len(TOKENS), first)

    async def offer(self, transfer: bytes, first: int = 0, layers: int = 2, **options: Any) -> bytes:
        return await self.control.offer(Offer(transfer, TOKENS, [self.table(first)], layers), **options)

    async def accept(self, ticket: bytes, first: int = 0, **options: Any) -> bytes:
        return await self.control.accept(Accept(ticket, TOKENS, [self.table(first)]), **options)

    async def until(self, *kinds: EventKind) -> list[Event]:
        """Wait for events of these kinds, in this order, and return them."""
        taken = []
        for _ in kinds:
            async with asyncio.timeout(PATIENCE):
                taken.append(await anext(self.events))
        assert [event.kind for event in taken] == list(kinds), taken
        return taken


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in a loop of its own; no task, thread, descriptor or unseen error may be left then."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        complaints: list[dict[str, Any]] = []

        async def all_of_it() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
            async with asyncio.timeout(3 * PATIENCE):
                await test(**fixtures)
            assert asyncio.all_tasks() == {asyncio.current_task()}
            gc.collect()

        before = threading.active_count(), open_descriptors()
        asyncio.run(all_of_it())
        assert (threading.active_count(), open_descriptors()) == before
        assert complaints == []

    return run


async def refused(call: Awaitable[object]) -> str:
    """Return the code that a call is refused with."""
    with pytest.raises(DoorError) as error:
        await call
    return error.value.code
