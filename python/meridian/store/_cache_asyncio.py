"""The object cache for programs that run on asyncio.

`AsyncNanoKVCache` is to tasks what `NanoKVCache` is to threads: the same requests over one connection, on
which many are under way at a time::

    async with AsyncNanoKVCache(heap_bytes=2 << 30, socket=socket) as cache:
        await cache.put("key", array)
        await cache.get("key", dst=array)

A call that is cancelled ends when the memory that it was given is the caller's again: with the agent's
answer, for which it waits no longer than its timeout.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from meridian._version import __version__
from meridian.door import _messages
from meridian.door._backoff import FAREWELL, as_door_error
from meridian.door._connection_asyncio import AsyncConnection
from meridian.door._events import DoorError, problem_of
from meridian.door._frames import frame
from meridian.door._memory import allow
from meridian.door._messages import Message
from meridian.store import _requests
from meridian.store._cache import PAGE_BYTES
from meridian.store._errors import StoreError, error_of
from meridian.store._link import GRACE, HELD, check_store, find_socket, hello, result_of
from meridian.store._requests import Asking, Key, ObjMeta, Wish, WritePlan

_T = TypeVar("_T")

_MAX_REQUESTS = 48
"""How many are under way on the connection at a time; agents refuse more than 64."""


class _AsyncLink:
    """One connection, on which answers come in any order."""

    def __init__(self, path: str, software: str) -> None:
        self._requests = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Message]] = {}
        self._welcomed: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.over = False
        self._connection = AsyncConnection(path, self._take, self._fail, self._unread)
        self._connection.ended.add_done_callback(self._ended)
        self._connection.send(frame(hello(software)))

    async def open(self, timeout: float) -> None:
        async with asyncio.timeout(timeout):
            welcome = await self._welcomed
        check_store(welcome)
        allow(self._connection.agent_pid())

    def _take(self, message: Message) -> None:
        if isinstance(message, _messages.Welcome):
            if not self._welcomed.done():
                self._welcomed.set_result(message)
        elif isinstance(message, _messages.Reply):
            if message.request == 0:
                self._fail(problem_of(message.problem) or ValueError("a reply to nothing"))
                return
            waiting = self._pending.pop(message.request, None)
            if waiting is not None and not waiting.done():
                waiting.set_result(message)

    def _unread(self) -> None:
        self._fail(StoreError("no_answer", "the agent does not read what it is told"))

    def _fail(self, error: Exception) -> None:
        """Leave: what was asked ends with the connection."""
        self.over = True
        if not self._welcomed.done():
            told = error_of(error) if isinstance(error, DoorError) else None
            self._welcomed.set_exception(told or error)
        self._connection.leave()

    def _ended(self, how: asyncio.Future[str]) -> None:
        self.over = True
        if how.cancelled():
            return
        if not self._welcomed.done():
            self._welcomed.set_exception(EOFError(how.result()))
        for waiting in self._pending.values():
            if not waiting.done():
                waiting.set_exception(StoreError("lost", f"the agent is gone: {how.result()}"))
        self._pending.clear()

    async def ask(self, message: Message, timeout: float) -> Message:
        """Ask, and return when memory of the request is this process's own again; not so after `held`."""
        message.request = next(self._requests)
        answer = self._pending[message.request] = asyncio.get_running_loop().create_future()
        self._connection.send(frame(message))
        cancelled = False
        until = asyncio.get_running_loop().time() + timeout + GRACE
        while not answer.done():
            left = until - asyncio.get_running_loop().time()
            if left <= 0:
                return await self._unanswered(answer, timeout)
            try:
                await asyncio.wait({answer}, timeout=left)
            except asyncio.CancelledError:
                cancelled = True  # the agent has the memory still
        if cancelled:
            _unheard(answer)
            raise asyncio.CancelledError
        return result_of(answer.result())

    async def _unanswered(self, answer: asyncio.Future[Message], timeout: float) -> Message:
        self._fail(TimeoutError())
        await asyncio.wait({self._connection.ended}, timeout=FAREWELL)
        if not self._connection.ended.done():
            answer.add_done_callback(_unheard)
            raise StoreError(
                "held",
                "the agent hangs, and may still read or write what it was given",
                "do not use that memory again",
            )
        _unheard(answer)
        raise StoreError("no_answer", f"the agent has not answered within {timeout:g} s")

    async def close(self) -> None:
        self.over = True
        if not self._connection.ended.done():
            self._connection.leave()
            await asyncio.wait({self._connection.ended}, timeout=FAREWELL)
        self._connection.close()
        if not self._connection.ended.done():
            self._connection.ended.cancel()
        if self._welcomed.done():
            self._welcomed.exception()
        else:
            self._welcomed.cancel()


class AsyncNanoKVCache:
    """The object cache of the cell, in one event loop. Many tasks may use it at once."""

    def __init__(
        self,
        heap_bytes: int,
        master_rank: int = 0,
        page_bytes: int = PAGE_BYTES,
        *,
        socket: str | os.PathLike[str] | None = None,
        tenant: str = "",
        timeout: float = 10.0,
        software: str = f"meridian-python {__version__}",
    ) -> None:
        """Say what is wanted, as `NanoKVCache` does; nothing is sent before `open`."""
        if master_rank < 0 or page_bytes <= 0 or not 0 < timeout <= 60:
            raise ValueError("master_rank is at least 0, page_bytes above 0, timeout above 0 and at most 60")
        self._socket = os.fspath(socket) if socket is not None else find_socket()
        self._heap_bytes, self._page_bytes = heap_bytes, page_bytes
        self._tenant, self._timeout, self._software = tenant, timeout, software
        self._link: _AsyncLink | None = None
        self._linking = asyncio.Lock()
        self._places = asyncio.Semaphore(_MAX_REQUESTS)
        self._closed = False
        self.rank = -1
        """The number of the owner on this host, once it is open; -1: it keeps nothing."""

    async def open(self) -> None:
        """Connect, and check that the owners have as much memory as is wanted."""
        try:
            self.rank = await self._run(_requests.check_heap(self._heap_bytes))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the connection. What is open for writing comes to nothing."""
        self._closed = True
        if self._link is not None:
            await self._link.close()
            self._link = None

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def put(
        self,
        key: Key,
        tensor: Any,
        *,
        preferred_segment: int | None = None,
        pinned: bool = False,
        priority: int = 0,
    ) -> None:
        """Store an object: `Exists` where there is one of that key."""
        await self._run(_requests.put(key, tensor, self._wish(preferred_segment, pinned, priority)))

    async def put_many(
        self,
        items: Iterable[tuple[Key, Any]],
        *,
        preferred_segment: int | None = None,
        pinned: bool = False,
        priority: int = 0,
    ) -> list[StoreError | None]:
        """Store objects together, and return what was wrong with each; None: nothing."""
        wish = self._wish(preferred_segment, pinned, priority)
        return await self._run(_requests.put_many(items, wish))

    async def get(self, key: Key, *, dst: Any = None) -> Any:
        """Return an object: as bytes, or in dst, which has its size. `Missing` where there is none."""
        return await self._run(_requests.get(key, dst))

    async def get_into(self, key: Key, dst: Any) -> int:
        """Read an object into dst, and return how large it is: `TooSmall` where dst does not hold it."""
        (size,) = await self._run(_requests.get_into([key], [dst]))
        if isinstance(size, StoreError):
            raise size
        return size

    async def get_into_many(self, keys: Sequence[Key], dsts: Sequence[Any]) -> list[int | StoreError]:
        """Read objects together, each into its own memory.

        Return for each how large it is, or what was wrong: `Missing`, or `TooSmall` with the size that it
        has. Memory of what was wrong holds anything.
        """
        return await self._run(_requests.get_into(keys, dsts))

    async def get_many(self, keys: Sequence[Key]) -> list[bytes | StoreError]:
        """Return objects that are read together: each as bytes, or what was wrong, `Missing` most likely."""
        return await self._run(_requests.get_many(keys))

    async def remove(self, key: Key) -> None:
        """Remove an object: `Missing` where there is none."""
        await self._run(_requests.remove(key))

    async def remove_many(self, keys: Sequence[Key]) -> list[StoreError | None]:
        """Remove objects together, and return what was wrong with each; None: nothing."""
        return await self._run(_requests.remove_many(keys))

    async def open_for_write(
        self,
        key: Key,
        bytes_total: int,
        *,
        preferred_segment: int | None = None,
        pinned: bool = False,
        priority: int = 0,
    ) -> WritePlan:
        """Make room for an object, which `write` fills and `commit` lets others find."""
        wish = self._wish(preferred_segment, pinned, priority)
        return await self._run(_requests.open_for_write(key, bytes_total, wish))

    async def write(self, key: Key, offset: int, piece: Any) -> None:
        """Write a piece of an object that was opened for writing."""
        await self._run(_requests.write(key, offset, piece))

    async def commit(self, key: Key) -> None:
        """Let an object be found that was opened for writing, and written. It is over in any case."""
        await self._run(_requests.commit(key))

    async def abort(self, key: Key) -> None:
        """Give the room of an object back that was opened for writing."""
        await self._run(_requests.commit(key, abort=True))

    async def get_location(self, key: Key, *, wait: float = 0.0) -> ObjMeta:
        """Say where an object lies. One that is not ready is waited for `wait` seconds."""
        return await self._run(_requests.get_location(key, min(wait, self._timeout)))

    async def has(self, keys: Sequence[Key]) -> list[bool]:
        """Say which objects are there."""
        return await self._run(_requests.has(keys))

    async def longest_run(self, keys: Sequence[Key]) -> int:
        """Return how many of the keys, from the first on, are there without a gap."""
        present = await self._run(_requests.has(keys))
        return present.index(False) if False in present else len(present)

    async def keys(self, prefix: Key = b"") -> list[tuple[bytes, int]]:
        """List the tenant's objects: keys, and sizes."""
        return await self._run(_requests.list_keys(prefix))

    async def stats(self) -> dict[str, Any]:
        """Return the counters of all owners together, and under `owners` those of each."""
        return await self._run(_requests.stats())

    async def evict_until_below(self, usage_ratio: float) -> int:
        """Let objects go until at most this part of each heap is used, and return how many left."""
        return await self._run(_requests.evict(usage_ratio))

    def _wish(self, preferred_segment: int | None, pinned: bool, priority: int) -> Wish:
        return Wish(self._page_bytes, preferred_segment, pinned, priority)

    async def _run(self, asking: Asking[_T]) -> _T:
        """Ask one thing after the other. Memory of a request is let go with the generator, or never."""
        try:
            message = next(asking)
            while True:
                message.tenant = self._tenant
                message.deadline_ms = max(1, int(self._timeout * 1000))
                async with self._places:
                    link = await self._linked()
                    result = await link.ask(message, self._timeout)
                message = asking.send(result)
        except StopIteration as end:
            value: _T = end.value
            return value
        except StoreError as error:
            if error.code == "held":
                HELD.append(asking)
            raise

    async def _linked(self) -> _AsyncLink:
        async with self._linking:
            if self._closed:
                raise StoreError("closed", "this cache is closed")
            if self._link is not None and not self._link.over:
                return self._link
            if self._link is not None:
                await self._link.close()
                self._link = None
            try:
                link = _AsyncLink(self._socket, self._software)
            except OSError as error:
                raise _told(error, self._socket) from None
            try:
                await link.open(self._timeout)
            except BaseException as error:
                await link.close()
                if isinstance(error, TimeoutError):
                    raise StoreError("no_answer", f"the agent at {self._socket} does not answer") from None
                if isinstance(error, OSError | EOFError | ValueError) and not isinstance(error, StoreError):
                    raise _told(error, self._socket) from None
                raise
            self._link = link
            return link


def _unheard(answer: asyncio.Future[Message]) -> None:
    """Take note of an answer that no call waits for."""
    if not answer.cancelled():
        answer.exception()


def _told(error: Exception, socket: str) -> StoreError:
    told = as_door_error(error, socket)
    return StoreError(told.code, told.message, told.hint)
