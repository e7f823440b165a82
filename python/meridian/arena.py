"""The memory of an object cache, as docs/store-layout.md draws it, for a process that maps it.

::

    0        4 KiB               heap_base                          heap_limit
    ┌─────────┬─────────┬──────┬──────────────────────────────────────┐
    │ HeapCtl │ headers │ ring │ extents, one for each object         │
    └─────────┴─────────┴──────┴──────────────────────────────────────┘
                                 │ payload │ pad 8 │ sums │ key │ pad │

A reader asks no owner and checks what it finds: key, epoch and state before and after a copy, and each sum.
A writer needs a plan from the owner, and writes payloads alone: Python cannot compare and swap words in
memory that others share, so that room, places in the ring and what makes an object READY are the owner's.

The vectors in testdata/store hold this module, the Go package and the C++ header together.
"""

from __future__ import annotations

import enum
import mmap
import struct
import threading
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

from meridian._xxh3 import xxh3_64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import ReadableBuffer, WriteableBuffer

VERSION: Final = 1
SEGMENT: Final = 4096
"""So many bytes of a payload have one sum."""
MAX_KEY: Final = 1024
PINNED: Final = 1
UNCHECKED: Final = 2
_GRANULE: Final = 64
_PART: Final = 1 << 20  # of a payload is written without a look at its header
_MAX_HEADERS: Final = 1 << 28


class State(enum.IntEnum):
    """Where an object stands."""

    RESERVED = 0
    WRITING = 1
    READY = 2
    DEAD = 3


class ArenaError(ValueError):
    """The memory holds no arena of this layout, or a call asks for what cannot be."""


class ReadError(Exception):
    """What a reader or a writer finds wrong with an object. Each means a miss."""

    verdict: ClassVar[str]


class Gone(ReadError):
    """The object is not ready, or another took its place."""

    verdict = "gone"


class Foreign(ReadError):
    """The object has another key."""

    verdict = "foreign"


class Torn(ReadError):
    """The object's checksum does not match its bytes."""

    verdict = "torn"


@dataclass(frozen=True, slots=True)
class Control:
    """HeapCtl, copied out of an arena."""

    FORM: ClassVar = struct.Struct("<4Q2I8QQ8I")

    heap_base: int
    heap_limit: int
    bump_ptr: int
    hdr_base: int
    hdr_count: int
    hdr_head: int
    free_head: tuple[int, ...]
    ann_base: int
    ann_capacity: int
    ann_head: int
    ann_tail: int
    epoch: int
    water_hi: int
    water_lo: int
    used_percent: int
    layout: int

    @classmethod
    def unpack(cls, memory: ReadableBuffer, at: int = 0) -> Self:
        """Read it where it lies."""
        fields = cls.FORM.unpack_from(memory, at)
        values: tuple[Any, ...] = (*fields[:6], fields[6:14], *fields[14:])
        return cls(*values)

    def pack(self) -> bytes:
        """Return its 144 bytes."""
        fields = astuple(self)
        return self.FORM.pack(*fields[:6], *self.free_head, *fields[7:])


@dataclass(frozen=True, slots=True)
class Extent:
    """How the bytes of an object lie in its extent, from its start."""

    align: int
    sums: int
    key: int
    size: int


def extent_of(size: int, key_length: int) -> Extent:
    """Lay out an object."""
    align = SEGMENT if size >= SEGMENT else _GRANULE
    sums = size + -size % 8
    key = sums + 8 * -(-size // SEGMENT)
    end = key + key_length
    return Extent(align, sums, key, end + -end % align)


@dataclass(frozen=True, slots=True)
class Header:
    """ObjHeader, copied out of an arena."""

    FORM: ClassVar = struct.Struct("<Q2I2Q2IQ2IQ")

    key_hash: int
    n_pages: int
    page_size: int
    payload_base: int
    bytes_total: int
    state: int
    epoch: int
    last_access: int
    flags: int
    key_len: int
    checksum: int

    @classmethod
    def unpack(cls, memory: ReadableBuffer, at: int = 0) -> Self:
        """Read it where it lies."""
        return cls(*cls.FORM.unpack_from(memory, at))

    def pack(self) -> bytes:
        """Return its 64 bytes."""
        return self.FORM.pack(*astuple(self))

    @property
    def extent(self) -> Extent:
        """Where the object's parts lie, from payload_base."""
        return extent_of(self.bytes_total, self.key_len)

    def lies_in(self, base: int, limit: int) -> bool:
        """Whether the object lies within a heap, and its numbers agree."""
        if not (0 < self.bytes_total <= limit and 0 < self.key_len <= MAX_KEY and self.page_size):
            return False
        extent = self.extent
        return (
            self.n_pages == -(-self.bytes_total // self.page_size)
            and self.payload_base % extent.align == 0
            and base <= self.payload_base <= limit - extent.size
        )


@dataclass(frozen=True, slots=True)
class Announce:
    """A producer's word to the owner, copied out of an arena."""

    FORM: ClassVar = struct.Struct("<Q2I2Q2IQ")

    key_hash: int
    owner_rank: int
    epoch: int
    header_off: int
    payload_off: int
    n_pages: int
    page_size: int
    bytes_total: int

    @classmethod
    def unpack(cls, memory: ReadableBuffer, at: int = 0) -> Self:
        """Read it where it lies."""
        return cls(*cls.FORM.unpack_from(memory, at))

    def pack(self) -> bytes:
        """Return its 48 bytes."""
        return self.FORM.pack(*astuple(self))


_WORD_AT: Final = 32  # of a header

_FENCE: Final = threading.Lock()


def _fence() -> None:
    """Keep loads and stores that come before in front of those that come after.

    What comes before a lock's release stays before it, what comes after an acquisition stays after that; the
    lock is taken twice because both may move into one critical section.
    """
    for _ in range(2):
        with _FENCE:
            pass


def object_name(tenant: str | bytes, key: str | bytes) -> bytes:
    """Return the key of an object in an arena: the length of the tenant as a varint, the tenant, the key."""
    whose, what = (text.encode() if isinstance(text, str) else bytes(text) for text in (tenant, key))
    if not what:
        raise ValueError("a key has at least one byte")
    length, name = len(whose), bytearray()
    while length >= 0x80:
        name.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes(name) + bytes((length,)) + whose + what


def hash_key(key: ReadableBuffer) -> int:
    """Return the hash of a key; never 0, which means none."""
    return max(1, xxh3_64(memoryview(key).cast("B")))


def sums_of(payload: memoryview) -> bytes:
    """Return the sums of a payload's segments, one behind the other."""
    return b"".join(
        xxh3_64(payload[at : at + SEGMENT]).to_bytes(8, "little") for at in range(0, len(payload), SEGMENT)
    )


def checksum(payload: ReadableBuffer) -> int:
    """Return the checksum of a payload: XXH3-64 over the sums of its segments."""
    return xxh3_64(memoryview(sums_of(memoryview(payload).cast("B"))))


class Arena:
    """An arena that is mapped here, or lies in any other buffer.

    Its bounds were checked when it was opened and are kept apart: whatever is written into it later, nothing
    reads or writes outside.
    """

    def __init__(self, memory: ReadableBuffer) -> None:
        view = memoryview(memory).cast("B")
        if len(view) < SEGMENT:
            raise ArenaError(f"{len(view)} bytes hold no arena")
        self._bytes = view[: len(view) & ~7]
        self._words = self._bytes.cast("Q")
        self._mapping: mmap.mmap | None = None
        control, size = self.control, len(view)
        if control.layout != VERSION:
            raise ArenaError(f"layout {control.layout}, this build reads layout {VERSION}")
        self._base, self._limit = control.heap_base, control.heap_limit
        self._headers, self._count = control.hdr_base, control.hdr_count
        self._ring, self._places = control.ann_base, control.ann_capacity
        if not 0 < self._count <= _MAX_HEADERS or not _inside(self._headers, 64 * self._count, 64, size):
            raise ArenaError(f"{self._count} headers at {self._headers} of {size} bytes")
        if self._places.bit_count() != 1 or not _inside(self._ring, 48 * self._places, 8, size):
            raise ArenaError(f"a ring of {self._places} at {self._ring} of {size} bytes")
        if self._base >= self._limit or not _inside(self._base, self._limit - self._base, SEGMENT, size):
            raise ArenaError(f"extents from {self._base} to {self._limit} of {size} bytes")

    @classmethod
    def open(cls, fd: int, *, writable: bool = False) -> Self:
        """Map the arena of a file descriptor, which may be closed afterwards."""
        mapping = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0))
        arena = cls(mapping)
        arena._mapping = mapping
        return arena

    def close(self) -> None:
        """Let go of the memory."""
        self._words.release()
        self._bytes.release()
        if self._mapping is not None:
            self._mapping.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return self._count

    @property
    def control(self) -> Control:
        """The control block, as it is now."""
        return Control.unpack(self._bytes)

    def word(self, index: int) -> tuple[int, int]:
        """Return state and epoch of a header, loaded as one."""
        word = self._words[self._header_at(index) + _WORD_AT >> 3]
        return word & 0xFFFFFFFF, word >> 32

    def header(self, index: int) -> Header:
        """Copy a header out. Whether it makes sense `Header.lies_in` says."""
        return Header.unpack(bytes(self._bytes[self._header_at(index) :][: Header.FORM.size]))

    def _header_at(self, index: int) -> int:
        if not 0 <= index < self._count:
            raise Gone(f"no header {index}: there are {self._count}")
        return self._headers + 64 * index

    def announcements(self) -> Iterator[Announce]:
        """Look at what waits in the ring, and take nothing out."""
        control = self.control
        for n in range(min((control.ann_head - control.ann_tail) & 0xFFFFFFFF, self._places)):
            place = (control.ann_tail + n) % self._places
            yield Announce.unpack(bytes(self._bytes[self._ring + 48 * place :][: Announce.FORM.size]))

    def read(self, index: int, epoch: int, key: bytes) -> bytes:
        """Return the payload of an object; Gone, Foreign or Torn if it is not what was asked for."""
        header = self._found(index, epoch, key)
        payload = bytearray(header.bytes_total)
        self.read_into(payload, index, epoch, key)
        return bytes(payload)

    def read_into(self, dst: WriteableBuffer, index: int, epoch: int, key: bytes, start: int = 0) -> None:
        """Copy the payload of an object, or as much of it as dst has bytes, from a multiple of SEGMENT on.

        A part ends with a segment or with the payload. What dst holds after an error says nothing.
        """
        header = self._found(index, epoch, key)
        view = memoryview(dst).cast("B")
        end, whole = start + len(view), len(view) == header.bytes_total
        if start % SEGMENT or end > header.bytes_total or (end % SEGMENT and end != header.bytes_total):
            raise ArenaError(f"bytes {start} to {end} of {header.bytes_total}: not whole segments")
        at, extent = header.payload_base, header.extent
        view[:] = self._bytes[at + start : at + end]
        stored = bytes(self._bytes[at + extent.sums : at + extent.key])
        self._unchanged(index, epoch)
        sums, first = sums_of(view), start // SEGMENT
        covering = sums if whole else stored
        if xxh3_64(memoryview(covering)) == header.checksum:
            if whole or sums == stored[8 * first :][: len(sums)]:
                return
        elif not whole:
            raise Torn("the sums themselves differ")
        for n in range(0, len(sums), 8):
            if sums[n : n + 8] != stored[8 * first + n :][:8]:
                raise Torn(f"segment {first + n // 8} differs")
        raise Torn("the sums themselves differ")

    def _found(self, index: int, epoch: int, key: bytes) -> Header:
        """The header of an object that is ready, and has this key."""
        word = self.word(index)
        _fence()
        header = self.header(index)
        if word != (State.READY, epoch) or header.flags & UNCHECKED:
            raise Gone(f"header {index} has state {word[0]} in epoch {word[1]}, flags {header.flags}")
        if not header.lies_in(self._base, self._limit):
            raise Gone(f"header {index} is of an object that cannot be: {header}")
        kept = bytes(self._bytes[header.payload_base + header.extent.key :][: header.key_len])
        self._unchanged(index, epoch)
        if header.key_hash != hash_key(key) or kept != key:
            raise Foreign(f"header {index} is of another key")
        return header

    def _unchanged(self, index: int, epoch: int) -> None:
        _fence()
        if (now := self.word(index)) != (State.READY, epoch):
            raise Gone(
                f"header {index} was ready in epoch {epoch}, now it has state {now[0]} in epoch {now[1]}"
            )

    def fill(self, index: int, epoch: int, offset: int, piece: ReadableBuffer) -> None:
        """Write a piece of a payload where the owner planned it; the owner is asked to commit afterwards.

        Gone if the owner has taken the room back, which is looked at before each part. Nothing can stop a
        writer within one: so the owner keeps the room until the writer's connection to the agent ends.
        """
        view, header = memoryview(piece).cast("B"), self.header(index)
        if not header.lies_in(self._base, self._limit):
            raise Gone(f"header {index} is of an object that cannot be: {header}")
        if not 0 <= offset <= header.bytes_total - len(view):
            raise ArenaError(f"{len(view)} bytes from {offset} on of {header.bytes_total}")
        for first in range(0, len(view), _PART):
            if self.word(index) not in ((State.RESERVED, epoch), (State.WRITING, epoch)):
                raise Gone(f"header {index} was taken back")
            part = view[first : first + _PART]
            at = header.payload_base + offset + first
            self._bytes[at : at + len(part)] = part


def _inside(base: int, size: int, align: int, limit: int) -> bool:
    """Whether bytes lie behind the control block, aligned, and within limit."""
    return base >= SEGMENT and base % align == 0 and base + size <= limit
