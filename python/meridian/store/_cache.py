"""The object cache for programs that run on threads."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from meridian._version import __version__
from meridian.arena import ArenaError, ReadError
from meridian.door._messages import Message
from meridian.store import _requests
from meridian.store._errors import NotReady, Stale, StoreError, error_of
from meridian.store._link import Link, find_socket
from meridian.store._memory import Memory, new_bytes
from meridian.store._requests import Asking, Key, ObjMeta, Wish, WritePlan, encoded

_T = TypeVar("_T")

PAGE_BYTES: Final = 256 * 1024
MAPPED: Final = 256 << 10
"""From this size on values are written where they are to lie, up to it they are read there: what that saves
is more than what it costs, two requests for one and sums in Python."""
_MAX_LINKS: Final = 8


class NanoKVCache:
    """The object cache of the cell, through the door of the agent of this host.

    Its methods may be called from several threads. Values never change: a key is removed before it is put
    again. Keys are text, or bytes; values are anything with the buffer protocol, NumPy's arrays too, and
    torch's tensors on the CPU. A value that is not small is copied by the agent itself, out of this process's
    memory or into it.
    """

    def __init__(
        self,
        heap_bytes: int,
        master_rank: int = 0,
        page_bytes: int = PAGE_BYTES,
        *,
        socket: str | os.PathLike[str] | None = None,
        tenant: str = "",
        timeout: float = 10.0,
        direct: bool = False,
        software: str = f"meridian-python {__version__}",
    ) -> None:
        """Connect.

        `heap_bytes` is what the owners must have together, which agents that keep objects (`meridian store
        serve`) make: 0 asks for nothing. The master is elected, so that `master_rank` has no effect.
        `page_bytes` is the page of what is put here. `socket` is the agent's door; default the only one in
        the state directory (MERIDIAN_STATE, or as configured). `tenant` is whose keys are meant. A call has
        `timeout` seconds, at most 60. With `direct`, objects of the agent itself are written and read where
        they lie, if it lets this process (`store.direct_map`): that saves copies; a read costs a checksum
        in Python.
        """
        if master_rank < 0 or page_bytes <= 0 or not 0 < timeout <= 60:
            raise ValueError("master_rank is at least 0, page_bytes above 0, timeout above 0 and at most 60")
        self._socket = os.fspath(socket) if socket is not None else find_socket()
        self._tenant, self._timeout, self._software = tenant, timeout, software
        self._page_bytes = page_bytes
        self._mutex = threading.Lock()  # protects the next three
        self._links: list[Link] = []
        self._plans: dict[bytes, tuple[Link, Message]] = {}
        self._closed = False
        self._direct = direct
        try:
            self.rank: Final[int] = self._run(_requests.check_heap(heap_bytes))
            """The number of the owner on this host; -1: it keeps nothing."""
        except BaseException:
            self.close()
            raise

    def put(
        self,
        key: Key,
        tensor: Any,
        *,
        preferred_segment: int | None = None,
        pinned: bool = False,
        priority: int = 0,
    ) -> None:
        """Store an object: `Exists` where there is one of that key. The owner of that rank is preferred.

        One that is `pinned` is not evicted; `Full` where an owner has as many pinned bytes as it may. Where
        `store.policy` is priority, objects of the lowest `priority`, 0 to 255, leave first.
        """
        wish = self._wish(preferred_segment, pinned, priority)
        link = self._acquire()
        try:
            if link.arena is None or not self._put_mapped(link, key, tensor, wish):
                self._drive(_requests.put(key, tensor, wish), link)
        finally:
            link.lock.release()

    def put_many(
        self,
        items: Iterable[tuple[Key, Any]],
        *,
        preferred_segment: int | None = None,
        pinned: bool = False,
        priority: int = 0,
    ) -> list[StoreError | None]:
        """Store objects together, and return what was wrong with each; None: nothing."""
        wish = self._wish(preferred_segment, pinned, priority)
        return self._run(_requests.put_many(items, wish))

    def get(self, key: Key, *, dst: Any = None) -> Any:
        """Return an object: as bytes, or in dst, which has its size. `Missing` where there is none.

        After an error dst holds anything.
        """
        link = self._acquire()
        try:
            found = self._read(link, key, dst)
            return self._drive(_requests.get(key, dst), link) if found is None else found
        finally:
            link.lock.release()

    def get_into(self, key: Key, dst: Any) -> int:
        """Read an object into dst, and return how large it is: `TooSmall` where dst does not hold it."""
        (size,) = self._run(_requests.get_into([key], [dst]))
        if isinstance(size, StoreError):
            raise size
        return size

    def get_into_many(self, keys: Sequence[Key], dsts: Sequence[Any]) -> list[int | StoreError]:
        """Read objects together, each into its own memory.

        Return for each how large it is, or what was wrong: `Missing`, or `TooSmall` with the size that it
        has. Memory of what was wrong holds anything.
        """
        return self._run(_requests.get_into(keys, dsts))

    def get_many(self, keys: Sequence[Key]) -> list[bytes | StoreError]:
        """Return objects that are read together: each as bytes, or what was wrong, `Missing` most likely."""
        return self._run(_requests.get_many(keys))

    def remove(self, key: Key) -> None:
        """Remove an object: `Missing` where there is none."""
        self._run(_requests.remove(key))

    def remove_many(self, keys: Sequence[Key]) -> list[StoreError | None]:
        """Remove objects together, and return what was wrong with each; None: nothing."""
        return self._run(_requests.remove_many(keys))

    def open_for_write(
        self,
        key: Key,
        bytes_total: int,
        *,
        preferred_segment: int | None = None,
        pinned: bool = False,
        priority: int = 0,
    ) -> WritePlan:
        """Make room for an object, which `write` fills and `commit` lets others find.

        One that is not committed comes to nothing when its time is over, and when this process ends.
        """
        wish = self._wish(preferred_segment, pinned, priority)
        link = self._acquire()
        try:
            at = self._drive(_requests.open_at(key, bytes_total, wish), link)
            with self._mutex:
                self._plans[encoded(key)] = link, at
        finally:
            link.lock.release()
        return _requests.plan_of(at)

    def write(self, key: Key, offset: int, piece: Any) -> None:
        """Write a piece of an object that was opened for writing."""
        link, at = self._plan(key)
        with link.lock:
            if not self._fill(link, at, offset, piece):
                self._drive(_requests.write(key, offset, piece), link)

    def commit(self, key: Key) -> None:
        """Let an object be found that was opened for writing, and written. It is over in any case."""
        self._end(key, _requests.commit(key))

    def abort(self, key: Key) -> None:
        """Give the room of an object back that was opened for writing."""
        self._end(key, _requests.commit(key, abort=True))

    def get_location(self, key: Key, *, wait: float = 0.0) -> ObjMeta:
        """Say where an object lies. One that is not ready is waited for `wait` seconds.

        `NotReady` while it is written, and where it was waited for and has not come; else `Missing`.
        That does not keep it there: the epoch of its header tells whether it is the same when it is read.
        """
        return self._run(_requests.get_location(key, min(wait, self._timeout)))

    def has(self, keys: Sequence[Key]) -> list[bool]:
        """Say which objects are there."""
        return self._run(_requests.has(keys))

    def longest_run(self, keys: Sequence[Key]) -> int:
        """Return how many of the keys, from the first on, are there without a gap."""
        present = self._run(_requests.has(keys))
        return present.index(False) if False in present else len(present)

    def keys(self, prefix: Key = b"") -> list[tuple[bytes, int]]:
        """List the tenant's objects: keys, and sizes. What comes and goes meanwhile may be in it or not."""
        return self._run(_requests.list_keys(prefix))

    def stats(self) -> dict[str, Any]:
        """Return the counters of all owners together, and under `owners` those of each."""
        return self._run(_requests.stats())

    def evict_until_below(self, usage_ratio: float) -> int:
        """Let objects go until at most this part of each heap is used, and return how many left."""
        return self._run(_requests.evict(usage_ratio))

    def close(self) -> None:
        """End the connections. What is open for writing comes to nothing."""
        with self._mutex:
            links, self._links, self._closed = self._links, [], True
            self._plans.clear()
        for link in links:
            with link.lock:
                if not link.over:
                    link.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def _wish(self, preferred_segment: int | None, pinned: bool, priority: int) -> Wish:
        return Wish(self._page_bytes, preferred_segment, pinned, priority)

    # How it is asked.

    def _run(self, asking: Asking[_T]) -> _T:
        link = self._acquire()
        try:
            return self._drive(asking, link)
        finally:
            link.lock.release()

    def _plan(self, key: Key, last: bool = False) -> tuple[Link, Message]:
        """Return what was opened: the connection, and the place."""
        with self._mutex:
            opened = self._plans.get(encoded(key))
            if last:
                self._plans.pop(encoded(key), None)
        if opened is None:
            raise StoreError("missing", f"{_requests.shown(key)} is not open for writing", "open it first")
        return opened

    def _end(self, key: Key, asking: Asking[None]) -> None:
        link, _ = self._plan(key, last=True)
        with link.lock:
            self._drive(asking, link)

    def _drive(self, asking: Asking[_T], link: Link) -> _T:
        """Ask one thing after the other. Memory of a request is let go with the generator, or never."""
        try:
            message = next(asking)
            while True:
                message = asking.send(link.ask(message, self._tenant, self._timeout, asking))
        except StopIteration as end:
            value: _T = end.value
            return value

    def _acquire(self) -> Link:
        """Take a connection that no call uses, or make one."""
        while True:
            with self._mutex:
                if self._closed:
                    raise StoreError("closed", "this cache is closed")
                self._links = [link for link in self._links if not link.over]
                for link in tuple(self._links):
                    if not link.lock.acquire(blocking=False):
                        continue
                    if not link.stale():
                        return link
                    link.close()  # the agent is another by now
                    self._links.remove(link)
                    link.lock.release()  # who has opened an object there waits for it
                if len(self._links) < _MAX_LINKS:
                    return self._connect()
                link = self._links[threading.get_ident() % len(self._links)]
            link.lock.acquire()
            if not link.over:
                return link
            link.lock.release()

    def _connect(self) -> Link:
        """Make a connection, and take it. The mutex is held."""
        made = Link(self._socket, self._software, self._timeout)
        made.lock.acquire()
        self._links.append(made)
        if self._direct:
            try:
                made.map(self._timeout)
            except BaseException:
                made.lock.release()
                raise
        return made

    # How objects are written and read where they lie.

    def _put_mapped(self, link: Link, key: Key, tensor: Any, wish: Wish) -> bool:
        """Put an object by writing it to its place; False: it is too small for that to be worth while."""
        with Memory(tensor) as memory:
            if memory.size < MAPPED:
                return False
            at = self._drive_for(key, _requests.open_at(key, memory.size, wish), link)
            try:
                if not self._fill(link, at, 0, memory.view()):
                    self._drive_for(key, _requests.write(key, 0, tensor), link)
            except BaseException:
                if not link.over:
                    with contextlib.suppress(StoreError):
                        self._drive(_requests.commit(key, abort=True), link)
                raise
            self._drive_for(key, _requests.commit(key), link)
        return True

    def _fill(self, link: Link, at: Message, offset: int, piece: Any) -> bool:
        """Write a piece of an object to its place; False: that is not mapped here."""
        if link.arena is None or not at.mapped:
            return False
        with Memory(piece) as memory:
            if not 0 <= offset <= at.size_bytes - memory.size:
                return False  # the agent says what is wrong with it
            try:
                link.arena.fill(at.header, at.epoch, offset, memory.view())
            except ReadError as error:
                hint = "write faster, or raise store.write_timeout_ms"
                raise Stale("stale", f"its time is over: {error}", hint) from None
        return True

    def _read(self, link: Link, key: Key, dst: Any) -> Any:
        """Read an object in the arena; None: it is elsewhere, or was not what it was said to be."""
        if link.arena is None:
            return None
        if dst is not None:
            with Memory(dst, writable=True) as memory:
                if memory.size > MAPPED:  # the agent's copy costs less than the sums here
                    return None
        try:
            at = self._drive_for(key, _requests.locate(key, 0.0), link)
        except NotReady:
            return None
        if not at.mapped:
            return None
        into = new_bytes(at.size_bytes) if dst is None else dst
        try:
            with Memory(into) as memory:
                if memory.size != at.size_bytes:
                    return None  # the agent says what is wrong with it
                link.arena.read_into(memory.view(), at.header, at.epoch, at.name)
        except (ReadError, ArenaError):
            return None
        return into

    def _drive_for(self, key: Key, asking: Asking[_T], link: Link) -> _T:
        """Ask, and name the key in what is refused."""
        try:
            return self._drive(asking, link)
        except StoreError as error:
            raise error_of(error, _requests.shown(key)) or error from None
