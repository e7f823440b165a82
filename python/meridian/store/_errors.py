"""What can come of a request to the object cache."""

from __future__ import annotations

from typing import ClassVar, Final

from meridian.door._events import DoorError
from meridian.door._messages import Message


class StoreError(DoorError):
    """Why the object cache refuses something, or did not answer.

    The code is a word of docs/wire.md. A request that was not answered (`lost`, `no_answer`) may have
    happened. After `held` an agent that hangs may still write to the memory of the request: that memory
    must not be used again.
    """

    known_code: ClassVar[str] = ""


class Exists(StoreError):
    """An object of that key is there, or is being written. Values never change: remove it first."""

    known_code = "exists"


class Missing(StoreError, KeyError):
    """There is no object of that key."""

    known_code = "missing"
    __str__ = StoreError.__str__


class NotReady(StoreError):
    """The object is being written, or was waited for and not written."""

    known_code = "not_ready"


class Overloaded(StoreError):
    """An owner, or the agent, had too much to do all the time. Nothing happened: try again."""

    known_code = "busy"


class TooSmall(StoreError, ValueError):
    """The memory that was given does not hold the object."""

    known_code = "too_small"
    size: int = 0
    """How large the object is; 0 where that is not known."""


class TooLarge(StoreError, ValueError):
    """An object of that size fits no owner."""

    known_code = "too_large"


class Full(StoreError):
    """The owner has no room, and nothing that may leave."""

    known_code = "full"


class Unavailable(StoreError):
    """No owner, or none that answered in time. What changes something may have happened."""

    known_code = "unavailable"


class Stale(StoreError):
    """What was being written is not stored: its time was over, or its bytes changed on the way."""

    known_code = "stale"


_KNOWN: Final = {
    cls.known_code: cls
    for cls in (Exists, Missing, NotReady, Overloaded, TooSmall, TooLarge, Full, Unavailable, Stale)
}


def error_of(problem: DoorError | Message, about: str = "") -> StoreError | None:
    """Return a problem as the exception of its code; None: there is none."""
    if not problem.code:
        return None
    message = f"{about}: {problem.message}" if about else problem.message
    return _KNOWN.get(problem.code, StoreError)(problem.code, message, problem.hint)
