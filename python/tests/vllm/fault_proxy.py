"""A proxy between two agents that can change a byte of what passes, or keep data waiting."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType

_CHUNK = 1 << 16
_DATA = 2048
"""Chunks of this size are data: requests and answers of agents are smaller."""


class FaultProxy:
    """A TCP proxy in front of an agent. It carries bytes as they come, unless it is told to do worse."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.flipped = 0
        self.carried = 0
        self.waiting = 0
        """Chunks of data that stand still now."""
        self._flips = 0
        self._passable = threading.Event()
        self._passable.set()
        self._state = threading.Lock()
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._run(self._accept)

    def flip(self, count: int = 1) -> None:
        """Flip a bit of so many of the next chunks of data."""
        with self._state:
            self._flips = count

    def hold(self) -> None:
        """Keep data waiting, and what comes behind it, until it is released."""
        self._passable.clear()

    def release(self) -> None:
        self._passable.set()

    def _run(self, work: object, *arguments: object) -> None:
        assert callable(work)
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:  # the agent is gone, and so is this connection
                near.close()
                continue
            with self._state:
                self._open |= {near, far}
            self._run(self._carry, near, far)
            self._run(self._carry, far, near)

    def _carry(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(_CHUNK):
                if len(chunk) >= _DATA:
                    self._wait()
                target.sendall(self._worn(chunk))
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _wait(self) -> None:
        with self._state:
            self.waiting += 1
        self._passable.wait()
        with self._state:
            self.waiting -= 1

    def _worn(self, chunk: bytes) -> bytes:
        with self._state:
            self.carried += len(chunk)
            if self._flips == 0 or len(chunk) < _DATA:
                return chunk
            self._flips -= 1
            self.flipped += 1
        changed = bytearray(chunk)
        changed[-_DATA // 2] ^= 0x10
        return bytes(changed)

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.release()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._open:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
        for end in self._open:
            end.close()
