"""The engine door as a Python engine sees it.

An engine registers with the agent of its host, lends it the memory of its KV
cache, and offers and accepts caches::

    engine process                               agent's process
    ┌────────────────────────────┐               ┌─────────────┐
    │ scheduler: Door(control=…) ╪═ Unix socket ═╪═► engine    │
    │ worker 0:  Door(rank=…) ═══╪═ + memory ════╪═► door      │
    └────────────────────────────┘               └─────────────┘

Each Door is one connection: the scheduler's process opens one as control, each
worker's process one as its rank. A Door keeps itself registered: when the agent
is lost it tells FAILED and FREED for everything outstanding and FENCED, then
connects with backoff, says again what it was, and tells SERVING.

`Steps` is a connection of its own: over it a scheduler tells of its steps and hears
what is decided about them, without ever waiting longer than it likes.

`AsyncDoor` is the same for engines that run on asyncio. A program that is no engine
asks for `agent_status`.

Needs the standard library and protobuf. The agent writes the tickets of offers;
an engine that cannot wait for one writes it itself with `Door.write_ticket`, which
needs blake3.
"""

from typing import TYPE_CHECKING

from meridian.door._door import Door, new_transfer, socket_path
from meridian.door._events import DoorError, Event, EventKind
from meridian.door._handoff import Accept, Offer
from meridian.door._memory import GPUMemory, sealed_memfd
from meridian.door._prefix import CacheTerms, Find, Found, Keep
from meridian.door._publication import Control, Layer, Publication, Rank, Scope
from meridian.door._status import AgentStatus, agent_status
from meridian.door._steps import Steps, Terms
from meridian.door.ticket import is_promise, transfer_of

if TYPE_CHECKING:
    from meridian.door._door_asyncio import AsyncDoor

__all__ = [
    "Accept",
    "AgentStatus",
    "AsyncDoor",
    "CacheTerms",
    "Control",
    "Door",
    "DoorError",
    "Event",
    "EventKind",
    "Find",
    "Found",
    "GPUMemory",
    "Keep",
    "Layer",
    "Offer",
    "Publication",
    "Rank",
    "Scope",
    "Steps",
    "Terms",
    "agent_status",
    "is_promise",
    "new_transfer",
    "sealed_memfd",
    "socket_path",
    "transfer_of",
]


def __getattr__(name: str) -> object:
    if name == "AsyncDoor":  # engines that run on threads need no asyncio
        from meridian.door._door_asyncio import AsyncDoor

        return AsyncDoor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
