"""Tickets: what a prefill engine gives to a decode engine, through hands that are not trusted.

A ticket is a right to ask for a cache, not to read it. docs/wire.md holds the
format; the vectors in testdata/door/tickets.json hold this module and the Go
package together.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from meridian.door._publication import Scope

if TYPE_CHECKING:
    from blake3 import blake3

MAGIC: Final = b"MRDT"
PROMISE: Final = b"MRDP"
"""What a gateway's promise of a ticket begins with. Agents make tickets of them."""
FOUND: Final = b"MRDF"
"""What the ticket of a found prefix begins with, which is for the engine that looked for it."""
VERSION: Final = 1
NEVER: Final = (1 << 63) - 1
"""An expiry that comes after every other."""

_ID_SIZE: Final = 16
_MAX_NAME: Final = 255
_U64: Final = struct.Struct("<Q")
# The first byte of what is hashed says what it is.
_MODEL: Final = b"\x01"
_PROMPT: Final = b"\x02"
_SALT: Final = b"\x03"


@dataclass(frozen=True, slots=True)
class Home:
    """The agent that speaks for the prefill engine, in one life of its process."""

    name: str
    incarnation: bytes


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a ticket says."""

    transfer: bytes
    home: Home
    tokens: Iterable[int]
    scope: Scope
    """Everything that the cache is of: the engine's and the request's own."""
    expires_us: int
    """When, by the clock of the home's process, in microseconds."""

    def seal(self, key: bytes) -> bytes:
        """Write the ticket under its home's key, which the door gives to control."""
        if len(self.transfer) != _ID_SIZE or len(self.home.incarnation) != _ID_SIZE:
            raise ValueError(f"ids of transfers and incarnations have {_ID_SIZE} bytes")
        if not 0 <= self.expires_us <= NEVER:
            raise ValueError(f"a ticket cannot expire at {self.expires_us}")
        name = self.home.name.encode()
        if len(name) > _MAX_NAME:
            raise ValueError(f"an agent's name has at most {_MAX_NAME} bytes, this one has {len(name)}")
        tokens = _token_bytes(self.tokens)
        body = b"".join(
            (
                MAGIC,
                bytes([VERSION]),
                self.transfer,
                _varint(len(name)),
                name,
                self.home.incarnation,
                _varint(len(tokens) // 4),
                _mac(key, _MODEL, *_texts(self.scope.model, self.scope.revision, self.scope.adapter)),
                _mac(key, _PROMPT, *_texts(self.scope.media), _U64.pack(len(tokens) // 4), tokens),
                _mac(key, _SALT, *_texts(self.scope.salt)),
                _varint(self.expires_us),
            )
        )
        return body + _mac(key, body)


def is_promise(ticket: bytes) -> bool:
    """Say whether this is a promise: what it is for may not be computed yet."""
    return ticket.startswith(PROMISE)


def transfer_of(ticket: bytes) -> bytes:
    """Return the id of the transfer that a ticket is for, or a promise, or a found prefix.

    Only agents can check it.
    """
    start = len(MAGIC) + 1
    known = ticket.startswith((MAGIC, PROMISE, FOUND)) and len(ticket) >= start + _ID_SIZE
    if not known or ticket[len(MAGIC)] != VERSION:
        raise ValueError(f"{len(ticket)} bytes that are no ticket of version {VERSION}")
    return ticket[start : start + _ID_SIZE]


def _token_bytes(tokens: Iterable[int]) -> bytes:
    packed = array("I", tokens)
    if packed.itemsize != 4 or struct.pack("=I", 1) != struct.pack("<I", 1):
        return struct.pack(f"<{len(packed)}I", *packed)
    return packed.tobytes()


def _texts(*texts: str) -> Iterable[bytes]:
    for text in texts:
        encoded = text.encode()
        yield _U64.pack(len(encoded))
        yield encoded


def _mac(key: bytes, *parts: bytes) -> bytes:
    hasher = _keyed(key)
    for part in parts:
        hasher.update(part)
    return hasher.digest()


def _keyed(key: bytes) -> blake3:
    from blake3 import blake3  # an engine that lets the agent write its tickets needs none

    return blake3(key=key)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
