"""One connection to the agent: frames out without waiting, frames in by one thread."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import threading
import time
from typing import Final

from meridian.door._frames import Deframer
from meridian.door._messages import Message
from meridian.door._outbox import Outbox

PIECE: Final = 64 << 10
"""How much is read at a time."""

_CREDENTIALS: Final = struct.Struct("=iII")


def connect(path: str) -> socket.socket:
    """Return a socket that does not block. A Unix socket connects at once, or not at all."""
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connected.setblocking(False)
        connected.connect(path)
    except BaseException:
        connected.close()
        raise
    return connected


def agent_pid(connected: socket.socket) -> int:
    """Return whose process is at the other end, as the kernel knows it."""
    raw = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid: int = _CREDENTIALS.unpack(raw)[0]
    return pid


class Connection:
    """A connection. Any thread may send; one thread receives, and writes what had to wait."""

    def __init__(self, path: str, wake: int) -> None:
        """Connect. A read of the descriptor `wake` interrupts `receive`; it stays the caller's."""
        self._socket = connect(path)
        self._wake = wake
        self._deframer = Deframer()
        self._lock = threading.Lock()  # protects the outbox
        self._outbox = Outbox(self._socket)

    def agent_pid(self) -> int:
        """Return whose process is at the other end, as the kernel knows it."""
        return agent_pid(self._socket)

    def send(self, data: bytes, descriptor: int | None = None) -> None:
        """Send whole frames, now or as soon as the agent reads. This never waits.

        Whether they arrive only an answer tells: where the connection has
        ended, `receive` says so. The descriptor must stay open until then.
        """
        with self._lock:
            self._outbox.put(data, descriptor, time.monotonic())
            if self._outbox.waiting_bytes:
                os.eventfd_write(self._wake, 1)

    @property
    def unread(self) -> bool:
        """Whether nothing more is sent because the agent does not read."""
        return self._outbox.unread

    def leave(self) -> None:
        """Say nothing more. The agent ends the connection once nothing of it touches the engine's memory."""
        with self._lock:
            self._outbox.leave()

    def receive(self, until: float | None) -> Message | None:
        """Wait for a message. None: woken, or `until` (of time.monotonic) has passed; EOFError: the end."""
        message = self._deframer.next()
        if message is not None or not self._wait(until):
            return message
        self._deframer.feed(self._read())
        return self._deframer.next()

    def discard(self, until: float | None) -> None:
        """Wait as `receive` does, and read away whatever comes."""
        if self._wait(until):
            self._read()

    def drain(self, until: float) -> None:
        """Read away what comes up to the end, or until then."""
        with contextlib.suppress(EOFError):
            while time.monotonic() < until:
                self.discard(until)

    def _read(self) -> bytes:
        try:
            data = self._socket.recv(PIECE)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise EOFError(str(error)) from None
        if not data:
            raise EOFError("the agent has ended the connection")
        return data

    def _wait(self, until: float | None) -> bool:
        """Wait for something to read, and write what waits; False: woken, or `until` has passed."""
        with self._lock:
            stalls_at = self._outbox.stalls_at()
        if stalls_at is not None:
            if time.monotonic() > stalls_at:
                with self._lock:
                    self._outbox.give_up()
                return False
            until = stalls_at if until is None else min(until, stalls_at)
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | (select.POLLOUT if stalls_at is not None else 0))
        poll.register(self._wake, select.POLLIN)
        patience = None if until is None else max(0.0, until - time.monotonic()) * 1000
        ready = dict(poll.poll(patience))
        if self._wake in ready:
            os.eventfd_read(self._wake)
        found = ready.get(self._socket.fileno(), 0)
        if found & select.POLLOUT:
            with self._lock:
                self._outbox.write(time.monotonic())
        return bool(found & (select.POLLIN | select.POLLHUP | select.POLLERR))

    def close(self) -> None:
        """Let the socket go."""
        with self._lock:
            self._outbox.left = True
            self._socket.close()
