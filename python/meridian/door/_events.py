"""What the agent tells an engine without being asked, and why it refuses."""

from __future__ import annotations

import contextlib
import enum
import os
import select
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from meridian.door._messages import Message

NO_TRANSFER: Final = bytes(16)

RANK_EVENTS: Final = 4096
"""How many events wait for a rank, which hears of every hand-off of its engine, whether it asks or not."""


class DoorError(Exception):
    """Why the agent refuses something or a hand-off failed, or that there is no agent to ask.

    The code is a word that programs may look at. Those of agents are in
    docs/wire.md; these are the client's own: `closed`, `not_serving` (no agent was
    asked), `lost` (the connection ended before the answer: nothing came of it),
    `no_answer` (the connection is ended for it: what was asked is undone when
    the event Fenced comes), `malformed`, `held` (of close: the agent has not
    let go of the memory yet), `order` (a call that is not for this place); with
    asyncio also `timeout` (of a call: what it began is taken back, as events tell)
    and `busy` (the agent was not asked: too many events wait to be taken).
    """

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(code, message, hint)
        self.code = code
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.code})" + (f"; {self.hint}" if self.hint else "")


def problem_of(message: Message) -> DoorError | None:
    """Return what a message of type Problem says; an empty one is none."""
    return DoorError(message.code, message.message, message.hint) if message.code else None


class EventKind(enum.IntEnum):
    """What has happened.

    Of an accept comes READY once, or FAILED once and then FREED once; of an
    offer FREED once.
    """

    SERVING = 1
    """The engine is complete: offers and accepts are taken."""
    READY = 2
    """An accepted cache is there, every byte checked."""
    FAILED = 3
    """An accepted cache will not come. The blocks come back with FREED."""
    FREED = 4
    """The blocks are the engine's again."""
    FENCED = 5
    """The engine does not serve until it has registered anew, which the client does by itself."""


_KINDS: Final = frozenset(EventKind)


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that has happened."""

    kind: EventKind
    transfer: bytes = NO_TRANSFER
    accepted: bool = False
    """Of an accept; else of an offer."""
    problem: DoorError | None = None
    """Why; None where all went well."""


def events_of(message: Message) -> Iterator[Event]:
    """Read the columns of an Event; ValueError where they do not fit together.

    Kinds that are not known here are a newer agent's, and passed over.
    """
    count = len(message.kinds)
    if not count == len(message.accepted) == len(message.problems) or len(message.transfers) != 16 * count:
        raise ValueError("columns of an event have different lengths")
    for i, kind in enumerate(message.kinds):
        if kind not in _KINDS:
            continue
        transfer = message.transfers[16 * i : 16 * i + 16]
        yield Event(EventKind(kind), transfer, message.accepted[i], problem_of(message.problems[i]))


class Mailbox:
    """Events that wait to be taken, and a descriptor that is readable while any do."""

    def __init__(self, limit: int | None) -> None:
        """Keep the last `limit` events; None: all."""
        self._events: deque[Event] = deque(maxlen=limit)
        self._descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def fileno(self) -> int:
        """Return the descriptor."""
        if self._descriptor < 0:
            raise ValueError("this door is closed")
        return self._descriptor

    def put(self, event: Event) -> None:
        """Add an event."""
        self._events.append(event)
        os.eventfd_write(self._descriptor, 1)

    def take(self, timeout: float) -> list[Event]:
        """Return what waits, in order; wait up to `timeout` seconds for the first."""
        if self._descriptor >= 0:
            poll = select.poll()
            poll.register(self._descriptor, select.POLLIN)
            poll.poll(max(0.0, timeout) * 1000)
            with contextlib.suppress(BlockingIOError):  # nothing came, or another thread was faster
                os.eventfd_read(self._descriptor)
        taken = []
        while self._events:
            taken.append(self._events.popleft())
        return taken

    def close(self) -> None:
        """Let the descriptor go. What waits can still be taken."""
        os.close(self._descriptor)
        self._descriptor = -1
