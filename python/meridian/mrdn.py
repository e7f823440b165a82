"""MRDN v1, the frame that carries one KV block, or any other body.

::

     0       4         8          12     13      16               32
    ┌───────┬─────────┬──────────┬──────┬───────┬────────────────┬──────┄
    │ MRDN  │ version │ body_len │ tier │ 0 0 0 │ BLAKE3-128     │ body
    │       │ u32 = 1 │ u32      │ u8   │ pad   │ of the body    │
    └───────┴─────────┴──────────┴──────┴───────┴────────────────┴──────┄

Integers are little-endian. The checksum covers the body only: a tier that came
from afar is a hint. docs/wire.md holds the format; the vectors in testdata/mrdn
hold this module, the Go package and the C++ header together.
"""

from __future__ import annotations

import enum
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from blake3 import blake3

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import ReadableBuffer

MAGIC: Final = b"MRDN"
VERSION: Final = 1
HEADER_SIZE: Final = 32
CHECKSUM_SIZE: Final = 16
DEFAULT_MAX_BODY: Final = 256 << 20
"""The cap on a body's length where the caller names none."""

_HEADER: Final = struct.Struct("<4sIIB3s16s")
_MAX_U32: Final = (1 << 32) - 1


class Tier(enum.IntEnum):
    """How soon a block may leave memory: lower leaves first."""

    THINK_COMPLETE = 0
    THINK_ACTIVE = 1
    OUTPUT_CRITICAL = 2

    def __str__(self) -> str:
        return self.name.lower()

    @classmethod
    def named(cls, name: str) -> Tier:
        """Return the tier that `str` writes as name."""
        for tier in cls:
            if str(tier) == name:
                return tier
        raise ValueError(f"unknown tier {name!r}: use {', '.join(map(str, cls))}")


class FrameError(ValueError):
    """What is wrong with a frame. Checks run in the order of the subclasses
    below, in every implementation, so that one bad input has one verdict."""

    verdict: ClassVar[str]


class Truncated(FrameError):
    """The input ends within a frame."""

    verdict = "truncated"


class BadMagic(FrameError):
    """The input is not an MRDN frame."""

    verdict = "magic"


class BadVersion(FrameError):
    """The frame is of a version that this build does not read."""

    verdict = "version"


class BadPad(FrameError):
    """The padding is not zero."""

    verdict = "pad"


class BadTier(FrameError):
    """There is no such tier."""

    verdict = "tier"


class TooLarge(FrameError):
    """The body is longer than the cap, or than a frame can say."""

    verdict = "too_large"


class BadChecksum(FrameError):
    """The body is not the one that was hashed."""

    verdict = "checksum"


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. The body is a view of the bytes it was parsed from."""

    tier: Tier
    checksum: bytes
    body: memoryview


def checksum(body: ReadableBuffer) -> bytes:
    """Return the BLAKE3 digest of body, cut to 128 bits."""
    return blake3(_bytes_of(body)).digest(CHECKSUM_SIZE)


def header(tier: int, body: ReadableBuffer) -> bytes:
    """Return the 32 bytes that go before body, so that body need not be copied."""
    known, size = _known_tier(tier), memoryview(body).nbytes
    if size > _MAX_U32:
        raise TooLarge(f"{size} bytes do not fit a frame")
    return _HEADER.pack(MAGIC, VERSION, size, known, b"", checksum(body))


def encode(tier: int, body: ReadableBuffer) -> bytes:
    """Return a whole frame around body."""
    return b"".join((header(tier, body), body))


def parse(buffer: ReadableBuffer, max_body: int = DEFAULT_MAX_BODY) -> tuple[Frame, memoryview]:
    """Read and verify the frame at the start of buffer.

    Return it and what follows it. Nothing is copied: both the frame's body and
    the rest are views of buffer.
    """
    view = _bytes_of(buffer)
    tier, size, digest = _parse_header(view, max_body)
    body, rest = view[HEADER_SIZE : HEADER_SIZE + size], view[HEADER_SIZE + size :]
    if len(body) < size:
        raise Truncated(f"{len(body)} of the body's {size} bytes")
    return _verified(Frame(tier, digest, body)), rest


def _bytes_of(buffer: ReadableBuffer) -> memoryview:
    return memoryview(buffer).cast("B").toreadonly()


def _parse_header(view: memoryview, max_body: int) -> tuple[Tier, int, bytes]:
    if len(view) < HEADER_SIZE:
        raise Truncated(f"{len(view)} of the header's {HEADER_SIZE} bytes")
    magic, version, size, tier, pad, digest = _HEADER.unpack_from(view)
    if magic != MAGIC:
        raise BadMagic(f"not an MRDN frame: starts with {magic!r}")
    if version != VERSION:
        raise BadVersion(f"unknown frame version {version}, this build reads version {VERSION}")
    if any(pad):
        raise BadPad(f"padding is not zero: {pad.hex(' ')}")
    known = _known_tier(tier)
    if size > max_body:
        raise TooLarge(f"a body of {size} bytes, the cap is {max_body}")
    return known, size, digest


def _known_tier(tier: int) -> Tier:
    try:
        return Tier(tier)
    except ValueError:
        raise BadTier(f"unknown tier {tier}") from None


def _verified(frame: Frame) -> Frame:
    found = checksum(frame.body)
    if found != frame.checksum:
        raise BadChecksum(f"header says {frame.checksum.hex()}, body has {found.hex()}")
    return frame


class Readable(Protocol):
    """A blocking binary stream; it may return less than it was asked for."""

    def read(self, size: int, /) -> bytes: ...


class Writable(Protocol):
    """A binary stream whose `write` takes all it is given."""

    def write(self, data: ReadableBuffer, /) -> object: ...


class Writer:
    """Writes frames, each with one `write` for its header and one for its body."""

    def __init__(self, file: Writable) -> None:
        self._file = file

    def write(self, tier: int, body: ReadableBuffer) -> None:
        """Write one frame around body."""
        self._file.write(header(tier, body))
        self._file.write(body)


class Reader:
    """Iterates over the frames of a stream.

    A clean end of the stream ends the iteration; an end within a frame is
    Truncated. After BadChecksum the stream stands at the next frame, so that a
    caller may report and go on; after any other error its place is unknown.
    """

    # Bounds what a header alone can make us allocate; beyond it the buffer
    # grows only as fast as bytes arrive.
    _FIRST_READ: Final = 1 << 20

    def __init__(self, file: Readable, max_body: int = DEFAULT_MAX_BODY) -> None:
        self._file = file
        self._max_body = max_body
        self.offset = 0
        """How many bytes have been read: between frames, where the next one starts."""

    def __iter__(self) -> Iterator[Frame]:
        return self

    def __next__(self) -> Frame:
        head = self._read(HEADER_SIZE)
        if len(head) == 0:
            raise StopIteration
        tier, size, digest = _parse_header(head, self._max_body)
        body = self._read(size)
        if len(body) < size:
            raise Truncated(f"{len(body)} of the body's {size} bytes")
        return _verified(Frame(tier, digest, body))

    def _read(self, size: int) -> memoryview:
        """Read size bytes, or fewer at the end of the stream."""
        data = bytearray()
        while len(data) < size:
            chunk = self._file.read(min(size - len(data), max(len(data), self._FIRST_READ)))
            if not chunk:
                break
            data += chunk
            self.offset += len(chunk)
        return _bytes_of(data)
