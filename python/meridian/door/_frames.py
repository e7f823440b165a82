"""Frames of the engine door.

::

    u32 length of what follows │ u16 type │ message

Little-endian. A file descriptor rides with a frame's first byte.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from meridian.door import _messages
from meridian.door._messages import Message

MAX_FRAME_BYTES: Final = 16 << 20
"""The cap on a frame's type and message."""

_LENGTH: Final = struct.Struct("<I")
_HEADER: Final = struct.Struct("<IH")


class BadFrame(ValueError):
    """What came is not a frame of this protocol, or what should go would not be one."""


class Outgoing(NamedTuple):
    """A frame to send, and the descriptor that rides with it, which stays whose it is."""

    wire: bytes
    descriptor: int | None = None


def frame(message: Message) -> bytes:
    """Write a message as a frame."""
    body: bytes = message.SerializeToString()
    length = len(body) + _HEADER.size - _LENGTH.size
    if length > MAX_FRAME_BYTES:
        raise BadFrame(
            f"a {message.DESCRIPTOR.name} of {length} bytes; a frame has at most {MAX_FRAME_BYTES}"
        )
    return _HEADER.pack(length, _messages.frame_type(message)) + body


class Deframer:
    """Cuts a stream of bytes into messages. Memory grows only as bytes come."""

    def __init__(self, parse: Callable[[int, bytes], Message | None] = _messages.parse) -> None:
        """Read messages by `parse`."""
        self._bytes = bytearray()
        self._parse = parse

    @property
    def waiting_bytes(self) -> int:
        """How much has come that is no whole message yet."""
        return len(self._bytes)

    def feed(self, data: bytes) -> None:
        """Take what came."""
        self._bytes += data

    def next(self) -> Message | None:
        """Return the next whole message, or None while it is not whole yet.

        Frames of a type that is not known here are a newer agent's, and passed over.
        """
        while (cut := self._cut()) is not None:
            frame_type, body = cut
            try:
                message = self._parse(frame_type, body)
            except ValueError as error:
                raise BadFrame(str(error)) from None
            if message is not None:
                return message
        return None

    def _cut(self) -> tuple[int, bytes] | None:
        """Return the type and message of the next whole frame, or None while it is not whole yet."""
        if len(self._bytes) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._bytes)
        if not _HEADER.size - _LENGTH.size <= length <= MAX_FRAME_BYTES:
            raise BadFrame(f"a length of {length}; a frame has 2 to {MAX_FRAME_BYTES} bytes")
        end = _LENGTH.size + length
        if len(self._bytes) < end:
            return None
        _, frame_type = _HEADER.unpack_from(self._bytes)
        body = bytes(self._bytes[_HEADER.size : end])
        del self._bytes[:end]
        return frame_type, body
