"""The sending half of a connection to the agent."""

from __future__ import annotations

import contextlib
import socket
from collections import deque
from typing import Final

from meridian.door._frames import MAX_FRAME_BYTES

_MAX_WAITING_BYTES: Final = 4 * MAX_FRAME_BYTES
_STALL_TIMEOUT: Final = 5.0


class Outbox:
    """Bytes that go as soon as the agent reads. Nothing here waits. Its owner locks it.

    It leaves, and drops what waits, where the other end does not read: too
    much waits, or nothing went for too long. Whether something has arrived only
    an answer tells.
    """

    def __init__(self, connected: socket.socket) -> None:
        """Send on a socket that does not block, and stays the caller's."""
        self._socket = connected
        self._waiting: deque[tuple[memoryview, list[int]]] = deque()
        self._went = 0.0  # when bytes last went, or began to wait
        self.waiting_bytes = 0
        self.left = False
        self.unread = False
        """It left because the agent does not read."""

    def put(self, data: bytes, descriptor: int | None, now: float) -> None:
        """Send whole frames, now or later. The descriptor must stay open until then."""
        if self.left:
            return
        if self.waiting_bytes + len(data) > _MAX_WAITING_BYTES:
            self.give_up()
            return
        if not self._waiting:
            self._went = now
        self._waiting.append((memoryview(data), [] if descriptor is None else [descriptor]))
        self.waiting_bytes += len(data)
        self.write(now)

    def write(self, now: float) -> None:
        """Send what the socket takes."""
        while self._waiting:
            data, descriptors = self._waiting[0]
            try:
                if descriptors:
                    sent = socket.send_fds(self._socket, [data], descriptors)
                else:
                    sent = self._socket.send(data)
            except BlockingIOError:
                return
            except OSError:
                self.leave()
                return
            self._went = now
            self.waiting_bytes -= sent
            if sent == len(data):
                self._waiting.popleft()
            else:
                self._waiting[0] = (data[sent:], [])

    def stalls_at(self) -> float | None:
        """Return when the agent will have read nothing for too long; None: nothing waits."""
        return self._went + _STALL_TIMEOUT if self._waiting else None

    def give_up(self) -> None:
        """Leave an agent that does not read."""
        self.unread = True
        self.leave()

    def leave(self) -> None:
        """Say nothing more. The agent ends the connection once nothing of it touches the engine's memory."""
        self.left = True
        self._waiting.clear()
        self.waiting_bytes = 0
        with contextlib.suppress(OSError):  # it has ended already
            self._socket.shutdown(socket.SHUT_WR)
