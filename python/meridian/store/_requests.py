"""What is asked of the object cache, and what becomes of the answers.

Each function is a generator: it yields one request after the other, is sent the result of each, and returns
what the caller wants. There is no socket in it; those who drive it are `_cache` and `_cache_asyncio`. Memory
that a request names is released when the generator ends, and not before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from meridian.door import _messages
from meridian.door._messages import Message
from meridian.store._errors import StoreError, TooSmall, error_of
from meridian.store._memory import INLINE, Memory, new_bytes

T = TypeVar("T")
Asking: TypeAlias = Generator[Message, Message, T]
Key: TypeAlias = str | bytes

_MAX_KEYS: Final = 256
_MAX_NAMES: Final = 4096
_MAX_FRAME_VALUES: Final = 128 << 10
_MAX_FRAME_KEYS: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class WritePlan:
    """Where an object is to lie: the rank of its owner (-1: it has just gone), and offsets in the arena."""

    key_hash: int
    dst_rank: int
    header_off: int
    payload_base: int
    page_bytes: int
    n_pages: int
    bytes_total: int
    epoch: int


@dataclass(frozen=True, slots=True)
class ObjMeta:
    """Where an object lies. The owner's rank is -1 where it has just gone."""

    key_hash: int
    owner_rank: int
    header_off: int
    payload_off: int
    bytes_total: int
    page_bytes: int
    n_pages: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Wish:
    """What a writer wants besides."""

    page_bytes: int
    preferred_segment: int | None = None
    pinned: bool = False
    priority: int = 0

    def message(self) -> dict[str, Any]:
        if self.preferred_segment is not None and self.preferred_segment < 0:
            raise ValueError(f"preferred_segment is {self.preferred_segment}; owners are numbered from 0")
        if not 0 <= self.priority <= 255:
            raise ValueError(f"priority is {self.priority}; there are 0 to 255")
        owner = 0 if self.preferred_segment is None else self.preferred_segment + 1
        return {
            "owner": owner,
            "page_bytes": self.page_bytes,
            "pinned": self.pinned,
            "priority": self.priority,
        }


def encoded(key: Key) -> bytes:
    """Return a key as it travels."""
    raw = key.encode() if isinstance(key, str) else bytes(key)
    if not 0 < len(raw) <= 1000:
        raise ValueError(f"a key of {len(raw)} bytes; there are 1 to 1000")
    return raw


def shown(key: Key) -> str:
    """Return a key for messages to people."""
    text = repr(key)
    return text if len(text) <= 80 else text[:79] + "…"


def put_many(items: Iterable[tuple[Key, Any]], wish: Wish) -> Asking[list[StoreError | None]]:
    """Put objects; one entry for each, None where all went well."""
    outcome: list[StoreError | None] = []
    pending = deque(items)
    while pending:
        with ExitStack() as lent:
            keys: list[Key] = []
            put = _messages.StorePut(wish=wish.message())
            inline = room = 0
            while pending and len(keys) < _MAX_KEYS and inline < _MAX_FRAME_VALUES and room < _MAX_FRAME_KEYS:
                key, value = pending.popleft()
                memory = lent.enter_context(Memory(value))
                small = memory.size <= INLINE
                put.keys.append(encoded(key))
                put.values.append(memory.read() if small else b"")
                put.addresses.append(0 if small else memory.address)
                put.sizes.append(0 if small else memory.size)
                inline += memory.size if small else 0
                room += len(put.keys[-1])
                keys.append(key)
            result = yield _messages.Store(put=put)
            outcome += _problems(keys, result)
    return outcome


def _problems(keys: Sequence[Key], result: Message) -> list[StoreError | None]:
    if not result.problems:
        return [None] * len(keys)
    if len(result.problems) != len(keys):
        raise StoreError("malformed", "the agent answers with a column of another length")
    return [error_of(problem, shown(key)) for key, problem in zip(keys, result.problems, strict=True)]


def put(key: Key, value: Any, wish: Wish) -> Asking[None]:
    """Put one object."""
    (error,) = yield from put_many([(key, value)], wish)
    if error is not None:
        raise error


def get_into(keys: Sequence[Key], destinations: Sequence[Any]) -> Asking[list[int | StoreError]]:
    """Get objects into memory; one entry for each: its size, or what was wrong."""
    if len(keys) != len(destinations):
        raise ValueError(f"{len(keys)} keys, and memory for {len(destinations)}")
    outcome: list[int | StoreError] = []
    for first in range(0, len(keys), _MAX_KEYS):
        some = keys[first : first + _MAX_KEYS]
        with ExitStack() as lent:
            get = _messages.StoreGet(keys=map(encoded, some))
            for destination in destinations[first : first + _MAX_KEYS]:
                memory = lent.enter_context(Memory(destination, writable=not isinstance(destination, bytes)))
                get.addresses.append(memory.address)
                get.sizes.append(memory.size)
            result = yield _messages.Store(get=get)
        outcome += _sized(some, result)
    return outcome


def _sized(keys: Sequence[Key], result: Message) -> list[int | StoreError]:
    if len(result.sizes) != len(keys):
        raise StoreError("malformed", "the agent answers with a column of another length")
    outcome: list[int | StoreError] = []
    for error, size in zip(_problems(keys, result), result.sizes, strict=True):
        if isinstance(error, TooSmall):
            error.size = size
        outcome.append(size if error is None else error)
    return outcome


def get_many(keys: Sequence[Key]) -> Asking[list[bytes | StoreError]]:
    """Get objects whose sizes are not known: the small ones at once, the others when their sizes are."""
    outcome: list[bytes | StoreError] = []
    for first in range(0, len(keys), _MAX_KEYS):
        some = keys[first : first + _MAX_KEYS]
        result = yield _messages.Store(get=_messages.StoreGet(keys=map(encoded, some)))
        found: list[bytes | StoreError] = []
        for i, size in enumerate(_sized(some, result)):
            found.append(size if isinstance(size, StoreError) else result.values[i])
        yield from _get_large(some, found)
        outcome += found
    return outcome


def _get_large(keys: Sequence[Key], found: list[bytes | StoreError]) -> Asking[None]:
    """Get those that did not fit into the answer, again where another object came meanwhile."""
    for _ in range(3):
        large = [i for i, one in enumerate(found) if isinstance(one, TooSmall) and one.size]
        if not large:
            return
        values = [new_bytes(one.size) for one in found if isinstance(one, TooSmall) and one.size]
        sizes = yield from get_into([keys[i] for i in large], values)
        for i, value, size in zip(large, values, sizes, strict=True):
            found[i] = size if isinstance(size, StoreError) else value[:size]


def get(key: Key, dst: Any) -> Asking[Any]:
    """Get one object: into dst, which it fills, or as bytes."""
    if dst is None:
        (value,) = yield from get_many([key])
        if isinstance(value, StoreError):
            raise value
        return value
    (size,) = yield from get_into([key], [dst])
    if isinstance(size, StoreError):
        raise size
    with Memory(dst) as memory:
        if size != memory.size:
            raise StoreError(
                "size", f"{shown(key)} has {size} bytes, dst {memory.size}", "give a dst of the object's size"
            )
    return dst


def remove_many(keys: Sequence[Key]) -> Asking[list[StoreError | None]]:
    """Remove objects; one entry for each, None where all went well."""
    outcome: list[StoreError | None] = []
    for first in range(0, len(keys), _MAX_KEYS):
        some = keys[first : first + _MAX_KEYS]
        result = yield _messages.Store(remove=_messages.StoreRemove(keys=map(encoded, some)))
        outcome += _problems(some, result)
    return outcome


def remove(key: Key) -> Asking[None]:
    """Remove one object."""
    (error,) = yield from remove_many([key])
    if error is not None:
        raise error


def has(keys: Sequence[Key]) -> Asking[list[bool]]:
    """Say which objects are there."""
    present: list[bool] = []
    raw = [encoded(key) for key in keys]
    while raw:
        some, room = 0, 0
        while some < min(len(raw), _MAX_NAMES) and room < _MAX_FRAME_KEYS:
            room += len(raw[some]) + 4
            some += 1
        result = yield _messages.Store(has=_messages.StoreHas(keys=raw[:some]))
        if len(result.present) != some:
            raise StoreError("malformed", "the agent answers with a column of another length")
        present += result.present
        raw = raw[some:]
    return present


def open_at(key: Key, size: int, wish: Wish) -> Asking[Message]:
    """Make room for an object, and return its place."""
    opening = _messages.StoreOpen(key=encoded(key), size_bytes=size, wish=wish.message())
    result = yield _messages.Store(open=opening)
    return result.place


def plan_of(at: Message) -> WritePlan:
    """Return a place as the plan of its writer."""
    return WritePlan(
        at.key_hash,
        at.rank,
        at.header_offset,
        at.payload_offset,
        at.page_bytes,
        at.pages,
        at.size_bytes,
        at.epoch,
    )


def open_for_write(key: Key, size: int, wish: Wish) -> Asking[WritePlan]:
    """Make room for an object."""
    return plan_of((yield from open_at(key, size, wish)))


def write(key: Key, offset: int, value: Any) -> Asking[None]:
    """Write a piece of what was opened."""
    with Memory(value) as memory:
        piece = _messages.StoreWrite(key=encoded(key), offset=offset)
        if memory.size <= INLINE:
            piece.value = memory.read()
        else:
            piece.address, piece.size_bytes = memory.address, memory.size
        yield _messages.Store(write=piece)


def commit(key: Key, abort: bool = False) -> Asking[None]:
    """End what was opened."""
    yield _messages.Store(commit=_messages.StoreCommit(key=encoded(key), abort=abort))


def locate(key: Key, wait: float) -> Asking[Message]:
    """Ask where an object lies."""
    asked = _messages.StoreLocate(key=encoded(key), wait_ms=min(int(max(0.0, wait) * 1000), 60_000))
    result = yield _messages.Store(locate=asked)
    return result.place


def get_location(key: Key, wait: float) -> Asking[ObjMeta]:
    """Ask where an object lies."""
    at = yield from locate(key, wait)
    return ObjMeta(
        at.key_hash,
        at.rank,
        at.header_offset,
        at.payload_offset,
        at.size_bytes,
        at.page_bytes,
        at.pages,
        at.epoch,
    )


def list_keys(prefix: Key) -> Asking[list[tuple[bytes, int]]]:
    """List objects with their sizes."""
    raw = prefix.encode() if isinstance(prefix, str) else bytes(prefix)
    listed: list[tuple[bytes, int]] = []
    after = b""
    while True:
        result = yield _messages.Store(list=_messages.StoreList(prefix=raw, after=after))
        listed += zip(result.listing.keys, result.listing.sizes, strict=True)
        after = result.listing.next
        if not after:
            return listed


_SUMMED: Final = (
    "heap_used",
    "heap_total",
    "ready",
    "writing",
    "ring_depth",
    "hits",
    "misses",
    "evictions",
    "reclaims",
    "timeouts",
    "refused",
    "out_of_memory",
    "bytes_in",
    "bytes_out",
    "cas_failures",
    "arena_bytes",
)


def stats() -> Asking[dict[str, Any]]:
    """Ask how the owners stand."""
    result = yield _messages.Store(stats=_messages.StoreStats())
    owners = [
        {
            "name": owner.name,
            "rank": owner.rank,
            "here": owner.here,
            "problem": owner.problem,
            "page_time_ns": owner.page_time_ns,
            **{name: getattr(owner, name) for name in _SUMMED},
        }
        for owner in result.owners
    ]
    summed: dict[str, Any] = {name: sum(owner[name] for owner in owners) for name in _SUMMED}
    summed["page_time_ns"] = max((owner["page_time_ns"] for owner in owners), default=0)
    summed["owners"] = owners
    return summed


def evict(usage_ratio: float) -> Asking[int]:
    """Let objects go."""
    if not 0.0 <= usage_ratio <= 1.0:
        raise ValueError(f"usage_ratio is {usage_ratio}; a part of the heap is between 0 and 1")
    result = yield _messages.Store(evict=_messages.StoreEvict(permille=int(usage_ratio * 1000)))
    evicted: int = result.evicted
    return evicted


def check_heap(heap_bytes: int) -> Asking[int]:
    """Check that the owners have as much, and return the rank of the one on this host, or -1."""
    if heap_bytes < 0:
        raise ValueError(f"heap_bytes is {heap_bytes}")
    found = yield from stats()
    if heap_bytes > found["arena_bytes"]:
        raise StoreError(
            "size",
            f"heap_bytes is {heap_bytes}, the owners have {found['arena_bytes']} together",
            "raise store.bytes where objects are kept (meridian store serve)",
        )
    return next((owner["rank"] for owner in found["owners"] if owner["here"]), -1)
