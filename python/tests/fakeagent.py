"""An agent that says what a test wants it to say."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from processes import PATIENCE

from meridian.door import _messages
from meridian.door._frames import Deframer
from meridian.door._messages import Message

WELCOME = _messages.Welcome(version=1, agent="n", incarnation=bytes(16))
SERVING = _messages.Event(kinds=[1], transfers=bytes(16), accepted=[False])
SERVING.problems.add()


class FakeAgent:
    """Says to each connection after its Hello what it is told to say, and then answers until the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sayings: list[bytes] = []
        self.hellos: list[Message] = []
        self.answer: Callable[[Message], bytes] = lambda _: b""
        """What it says to anything else."""
        self.at_once = False
        """Whether it listens to several at a time; else to one after the other."""
        self._going = threading.Event()
        self._going.set()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            if self.at_once:
                threading.Thread(target=self._welcome, args=(connection,), daemon=True).start()
            else:
                self._welcome(connection)

    def _welcome(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):  # who has left is not missed
            connection.settimeout(PATIENCE)
            deframer = Deframer()
            while (hello := deframer.next()) is None:
                deframer.feed(connection.recv(1 << 16))
            self.hellos.append(hello)
            connection.sendall(self.sayings.pop(0) if self.sayings else b"")
            self._converse(connection, deframer)

    def _converse(self, connection: socket.socket, deframer: Deframer) -> None:
        while self._going.wait(2 * PATIENCE) and (data := connection.recv(1 << 16)):
            deframer.feed(data)
            while (message := deframer.next()) is not None:
                connection.sendall(self.answer(message))

    @contextlib.contextmanager
    def hanging(self) -> Iterator[None]:
        """Read nothing for a while, and end no connection."""
        self._going.clear()
        try:
            yield
        finally:
            self._going.set()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE)
        self._listener.close()
