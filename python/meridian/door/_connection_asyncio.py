"""One connection to the agent, served by an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from meridian.door._connection import PIECE, agent_pid, connect
from meridian.door._frames import MAX_FRAME_BYTES, Deframer
from meridian.door._messages import Message
from meridian.door._outbox import Outbox

_MUCH: Final = MAX_FRAME_BYTES
"""How many bytes may wait before those who ask wait, too."""


class AsyncConnection:
    """A connection. What comes is passed on from the loop itself: no task reads."""

    def __init__(
        self,
        path: str,
        take: Callable[[Message], None],
        garbled: Callable[[ValueError], None],
        unread: Callable[[], None],
    ) -> None:
        """Connect. After `garbled`, whatever comes is read away; after `unread` nothing more is sent."""
        self._loop = asyncio.get_running_loop()
        self._take = take
        self._garbled = garbled
        self._unread = unread
        self._deframer: Deframer | None = Deframer()
        self._drained = asyncio.Event()
        self._stall: asyncio.TimerHandle | None = None  # there is one while something waits
        self._socket = connect(path)
        self._outbox = Outbox(self._socket)
        self.ended: asyncio.Future[str] = self._loop.create_future()
        """Done when the agent has ended the connection: how."""
        self._loop.add_reader(self._socket, self._readable)

    def agent_pid(self) -> int:
        """Return whose process is at the other end, as the kernel knows it."""
        return agent_pid(self._socket)

    def send(self, data: bytes, descriptor: int | None = None) -> None:
        """Send whole frames, now or as soon as the agent reads. This never waits."""
        had_left = self._outbox.left
        self._outbox.put(data, descriptor, self._loop.time())
        self._watch()
        if self._outbox.unread and not had_left:
            self._unread()

    async def drained(self) -> None:
        """Wait while much waits to be sent. An agent that reads nothing is left, which ends it."""
        while self._outbox.waiting_bytes > _MUCH:
            self._drained.clear()
            await self._drained.wait()

    def leave(self) -> None:
        """Say nothing more. The agent ends the connection once nothing of it touches the engine's memory."""
        self._outbox.leave()
        self._watch()

    def discard(self) -> None:
        """Read away whatever comes from now on."""
        self._deframer = None

    def close(self) -> None:
        """Let the socket go."""
        self.discard()
        self.leave()
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _readable(self) -> None:
        try:
            data = self._socket.recv(PIECE)
        except BlockingIOError:
            return
        except OSError as error:
            self._end(str(error))
            return
        if not data:
            self._end("the agent has ended the connection")
            return
        if self._deframer is None:
            return
        self._deframer.feed(data)
        try:
            # What is taken may make the rest uninteresting.
            while self._deframer is not None and (message := self._deframer.next()) is not None:
                self._take(message)
        except ValueError as error:
            self.discard()
            self._garbled(error)

    def _end(self, how: str) -> None:
        self._loop.remove_reader(self._socket)
        self._outbox.leave()
        self._watch()
        self.ended.set_result(how)

    def _writable(self) -> None:
        self._outbox.write(self._loop.time())
        self._watch()

    def _watch(self) -> None:
        """Write when that is possible, and see to it that it is some day."""
        if self._outbox.waiting_bytes <= _MUCH:
            self._drained.set()
        stalls_at = self._outbox.stalls_at()
        if stalls_at is not None and self._stall is None:
            self._loop.add_writer(self._socket, self._writable)
            self._stall = self._loop.call_at(stalls_at, self._stalled)
        elif stalls_at is None and self._stall is not None:
            self._loop.remove_writer(self._socket)
            self._stall.cancel()
            self._stall = None

    def _stalled(self) -> None:
        stalls_at = self._outbox.stalls_at()
        if stalls_at is not None and stalls_at > self._loop.time():  # something went meanwhile
            self._stall = self._loop.call_at(stalls_at, self._stalled)
        else:
            self._outbox.give_up()
            self._watch()
            self._unread()
