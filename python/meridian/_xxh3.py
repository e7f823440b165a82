"""XXH3-64, with the default secret and without a seed: the hash of the object cache's keys and payloads.

The module `xxhash` or the system's libxxhash computes it where there is one, at the speed of memory; plain
Python else, at some twenty megabytes a second.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

_M32: Final = (1 << 32) - 1
_M64: Final = (1 << 64) - 1
_P32: Final = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_P64: Final = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE: Final = 64
_BLOCK: Final = 1024


def _u64(data: bytes | memoryview, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _secret(at: int) -> int:
    return _u64(_SECRET, at)


def _rotated(h: int, by: int) -> int:
    return (h << by | h >> (64 - by)) & _M64


def _folded(a: int, b: int) -> int:
    product = a * b
    return (product ^ product >> 64) & _M64


def _avalanche(h: int) -> int:
    h &= _M64
    h = ((h ^ h >> 37) * 0x165667919E3779F9) & _M64
    return h ^ h >> 32


def _old_avalanche(h: int) -> int:
    """XXH64's."""
    h = ((h ^ h >> 33) * _P64[1]) & _M64
    h = ((h ^ h >> 29) * _P64[2]) & _M64
    return h ^ h >> 32


def _mixed(data: memoryview, at: int, secret: int) -> int:
    return _folded(_u64(data, at) ^ _secret(secret), _u64(data, at + 8) ^ _secret(secret + 8))


def _short(data: memoryview) -> int:
    """Of at most 16 bytes."""
    size = len(data)
    if size > 8:
        low = _u64(data, 0) ^ _secret(24) ^ _secret(32)
        high = _u64(data, size - 8) ^ _secret(40) ^ _secret(48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche(size + swapped + high + _folded(low, high))
    if size >= 4:
        first, last = int.from_bytes(data[:4], "little"), int.from_bytes(data[-4:], "little")
        h = (last + (first << 32)) ^ _secret(8) ^ _secret(16)
        h ^= _rotated(h, 49) ^ _rotated(h, 24)
        h = h * 0x9FB21C651E98DF25 & _M64
        h = (h ^ ((h >> 35) + size)) * 0x9FB21C651E98DF25 & _M64
        return h ^ h >> 28
    if size > 0:
        h = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        return _old_avalanche(h ^ (_secret(0) & _M32) ^ (_secret(0) >> 32))
    return _old_avalanche(_secret(56) ^ _secret(64))


def _medium(data: memoryview) -> int:
    """Of 17 to 240 bytes."""
    size = len(data)
    h = size * _P64[0]
    if size <= 128:
        for n in range((size - 1) // 32 + 1):
            h += _mixed(data, 16 * n, 32 * n) + _mixed(data, size - 16 * (n + 1), 32 * n + 16)
        return _avalanche(h)
    for n in range(8):
        h += _mixed(data, 16 * n, 16 * n)
    h = _avalanche(h)
    for n in range(8, size // 16):
        h += _mixed(data, 16 * n, 16 * (n - 8) + 3)
    return _avalanche(h + _mixed(data, size - 16, 119))


_STRIPES: Final = _BLOCK // _STRIPE
_KEYS: Final = [struct.unpack_from("<8Q", _SECRET, 8 * n) for n in range(_STRIPES)]
_SCRAMBLE: Final = struct.unpack_from("<8Q", _SECRET, 128)
_LAST: Final = struct.unpack_from("<8Q", _SECRET, 121)


def _accumulate(lanes: list[int], words: tuple[int, ...], keys: tuple[int, ...]) -> None:
    for n in range(8):
        word = words[n]
        keyed = word ^ keys[n]
        lanes[n ^ 1] += word
        lanes[n] += (keyed & _M32) * (keyed >> 32)


def _long(data: memoryview) -> int:
    """Of more than 240 bytes."""
    size = len(data)
    lanes = [_P32[2], _P64[0], _P64[1], _P64[2], _P64[3], _P32[1], _P64[4], _P32[0]]
    for stripe in range((size - 1) // _STRIPE):
        _accumulate(lanes, struct.unpack_from("<8Q", data, _STRIPE * stripe), _KEYS[stripe % _STRIPES])
        if stripe % _STRIPES == _STRIPES - 1:
            for n in range(8):
                lane = lanes[n] & _M64
                lanes[n] = ((lane ^ lane >> 47 ^ _SCRAMBLE[n]) * _P32[0]) & _M64
    _accumulate(lanes, struct.unpack_from("<8Q", data, size - _STRIPE), _LAST)
    h = size * _P64[0]
    for n in range(0, 8, 2):
        h += _folded((lanes[n] & _M64) ^ _secret(11 + 8 * n), (lanes[n + 1] & _M64) ^ _secret(19 + 8 * n))
    return _avalanche(h)


def plain(data: memoryview) -> int:
    """XXH3-64 in plain Python."""
    return _short(data) if len(data) <= 16 else _medium(data) if len(data) <= 240 else _long(data)


def from_module() -> Callable[[memoryview], int]:
    """XXH3-64 of the module xxhash; ImportError where there is none."""
    intdigest: Any = import_module("xxhash").xxh3_64_intdigest
    return lambda data: int(intdigest(data))


def from_system() -> Callable[[memoryview], int]:
    """XXH3-64 of libxxhash; OSError or AttributeError where there is none, or an old one."""
    function = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
    function.restype, function.argtypes = ctypes.c_uint64, (ctypes.c_void_p, ctypes.c_size_t)

    def hashed(data: memoryview) -> int:
        # An address is to be had only of memory that may be written; bytes are passed as they are.
        if data.readonly:
            return int(function(bytes(data), len(data)))
        return (
            int(function(ctypes.addressof(ctypes.c_char.from_buffer(data)), len(data)))
            if data
            else plain(data)
        )

    return hashed


def _fastest() -> Callable[[memoryview], int]:
    for choice in (from_module, from_system):
        try:
            return choice()
        except (ImportError, OSError, AttributeError):
            continue
    return plain


xxh3_64: Final[Callable[[memoryview], int]] = _fastest()
"""XXH3-64 of bytes."""
