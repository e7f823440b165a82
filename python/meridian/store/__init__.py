"""The object cache as a Python program sees it.

Objects by key in the memory of a cell's owners, through the door of the agent of this host::

    from meridian.store import NanoKVCache

    with NanoKVCache(heap_bytes=2 << 30, socket="/run/meridian/door-a.sock") as cache:
        cache.put("sess:42:kv:L0", tensor, preferred_segment=1)
        cache.get("sess:42:kv:L0", dst=other)
        cache.longest_run(["sess:42:kv:L0", "sess:42:kv:L1"])

`AsyncNanoKVCache` is the same for programs that run on asyncio. docs/store.md tells the rest.

Needs the standard library and protobuf.
"""

from typing import TYPE_CHECKING

from meridian.store._cache import NanoKVCache
from meridian.store._errors import (
    Exists,
    Full,
    Missing,
    NotReady,
    Overloaded,
    Stale,
    StoreError,
    TooLarge,
    TooSmall,
    Unavailable,
)
from meridian.store._requests import ObjMeta, WritePlan

if TYPE_CHECKING:
    from meridian.store._cache_asyncio import AsyncNanoKVCache

__all__ = [
    "AsyncNanoKVCache",
    "Exists",
    "Full",
    "Missing",
    "NanoKVCache",
    "NotReady",
    "ObjMeta",
    "Overloaded",
    "Stale",
    "StoreError",
    "TooLarge",
    "TooSmall",
    "Unavailable",
    "WritePlan",
]


def __getattr__(name: str) -> object:
    if name == "AsyncNanoKVCache":  # programs that run on threads need no asyncio
        from meridian.store._cache_asyncio import AsyncNanoKVCache

        return AsyncNanoKVCache
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
