"""How a lost agent is looked for."""

from __future__ import annotations

import logging
import random
from typing import Final

from meridian.door._events import DoorError

FAREWELL: Final = 5.0
"""How long an agent that refused may take to hang up, in seconds. Nothing was offered or accepted by then."""

NOT_REGISTERED: Final = (DoorError, OSError, EOFError, ValueError)
"""What comes of an attempt that fails."""

_FIRST_PAUSE: Final = 0.02
_LAST_PAUSE: Final = 2.0

_log: Final = logging.getLogger("meridian.door")


class Backoff:
    """Tells how long to wait before the next attempt to register."""

    def __init__(self, engine: str, socket: str) -> None:
        self._engine = engine
        self._socket = socket
        self._pause = _FIRST_PAUSE
        self._told = ""

    def pause(self) -> float:
        """Return how many seconds to wait: never the same, so that engines do not all come at once."""
        return random.uniform(self._pause / 2, 3 * self._pause / 2)

    def failed(self, error: Exception) -> float:
        """Take note of an attempt that failed, and return how many seconds to wait."""
        if self._told != str(error):  # an agent that stays away is told of once
            self._told = str(error)
            _log.warning(
                "engine %s is not registered at %s; trying again: %s", self._engine, self._socket, error
            )
        pause = self.pause()
        self._pause = min(2 * self._pause, _LAST_PAUSE)
        return pause

    def succeeded(self) -> None:
        """Begin anew after the next loss."""
        self._pause, self._told = _FIRST_PAUSE, ""


def as_door_error(error: Exception, socket: str) -> DoorError:
    """Tell the caller of `open` why the first attempt failed."""
    match error:
        case DoorError():
            return error
        case ValueError():
            return DoorError("malformed", f"the agent at {socket} says what cannot be read: {error}")
        case EOFError():
            return DoorError("lost", f"the agent at {socket} ended the connection: {error}")
        case _:
            return DoorError(
                "lost", f"no agent at {socket}: {error}", "start `meridian agent`, or look at the path"
            )
