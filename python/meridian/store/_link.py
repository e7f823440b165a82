"""One connection to the agent's door that asks one thing at a time."""

from __future__ import annotations

import itertools
import os
import socket as sockets
import threading
import time
from pathlib import Path
from typing import Any, Final

from meridian.arena import Arena
from meridian.door import _messages
from meridian.door._backoff import FAREWELL, as_door_error
from meridian.door._connection import PIECE, agent_pid
from meridian.door._conversation import check_welcome, introduce
from meridian.door._events import DoorError, problem_of
from meridian.door._frames import Deframer, frame
from meridian.door._memory import allow
from meridian.door._messages import Message
from meridian.store._errors import StoreError, error_of

GRACE: Final = 5.0
"""How much longer than a request's deadline its answer may take, in seconds."""

HELD: Final[list[Any]] = []
"""What an agent that hangs may still write to: it stays for as long as this process does."""


def hello(software: str) -> Message:
    """Return the first words of a client that is no engine."""
    first = _messages.Hello(software=software)
    first.client.SetInParent()
    introduce(first)
    return first


def check_store(welcome: Message) -> None:
    """Refuse an agent that has no object cache."""
    check_welcome(welcome)
    if "store" not in welcome.features:
        raise StoreError(
            "unsupported",
            f"agent {welcome.agent} has no object cache",
            "turn store.enabled on in its configuration",
        )


def result_of(reply: Message) -> Message:
    """Return what the cache answers; StoreError where it refuses."""
    error = error_of(reply.problem)
    if error is not None:
        raise error
    return reply.store


def find_socket() -> str:
    """Return the door of the only agent in the state directory: where the commands would look, too."""
    directory = _state_directory()
    doors = sorted(directory.glob("door-*.sock"))
    if not doors:
        raise ValueError(
            f"no agent has a door in {directory}: start one (meridian store serve), or say where with socket="
        )
    if len(doors) > 1:
        named = ", ".join(door.name for door in doors)
        raise ValueError(f"{len(doors)} doors in {directory}: {named}; say which with socket=")
    return os.fspath(doors[0])


def _state_directory() -> Path:
    if state := os.environ.get("MERIDIAN_STATE"):
        return Path(state)
    from meridian.config import load_config  # it needs a TOML reader, which others do not

    configured = load_config().agent.state_dir
    if configured != "auto":
        return Path(configured)
    home = Path(os.environ.get("XDG_STATE_HOME", ""))
    return home / "meridian" if home.is_absolute() else Path.home() / ".local/state/meridian"


class Link:
    """A connection. The call that has its lock asks."""

    def __init__(self, path: str, software: str, timeout: float) -> None:
        """Connect and introduce this process. OSError, DoorError: there is no such agent, or no cache."""
        self.lock = threading.Lock()
        self.over = False
        self.arena: Arena | None = None
        """The agent's own objects, where `map` was called and the agent lets this process."""
        self._path = path
        self._requests = itertools.count(1)
        self._deframer = Deframer()
        self._descriptors: list[int] = []
        self._socket = sockets.socket(sockets.AF_UNIX, sockets.SOCK_STREAM)
        try:
            until = time.monotonic() + timeout
            self._socket.settimeout(timeout)
            self._socket.connect(path)
            self._socket.sendall(frame(hello(software)))
            welcome = self._expect(_messages.Welcome, until)
            check_store(welcome)
            self.agent: str = welcome.agent
            allow(agent_pid(self._socket))
        except TimeoutError:
            self._socket.close()
            raise StoreError("no_answer", f"the agent at {path} does not answer") from None
        except (OSError, EOFError, ValueError) as error:
            self._socket.close()
            told = as_door_error(error, path)
            raise StoreError(told.code, told.message, told.hint) from None
        except BaseException:
            self._socket.close()
            raise

    def ask(self, message: Message, tenant: str, timeout: float, memory: Any) -> Message:
        """Ask, and return the result when memory of the request is this process's own again."""
        message.request = next(self._requests)
        message.tenant, message.deadline_ms = tenant, max(1, min(int(timeout * 1000), 60_000))
        until = time.monotonic() + timeout + GRACE
        try:
            self._socket.settimeout(timeout + GRACE)
            self._socket.sendall(frame(message))
            while (reply := self._expect(_messages.Reply, until)).request != message.request:
                pass  # of what a caller gave up
        except BaseException as error:
            raise self._lost(error, timeout, memory) from None
        return result_of(reply)

    def stale(self) -> bool:
        """Whether the agent has ended the connection while no call used it."""
        try:
            self._socket.settimeout(0.0)
            return not self._socket.recv(1, sockets.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def map(self, timeout: float) -> None:
        """Map the agent's own objects, if it lets this process.

        Another agent of that name has other memory, in which old plans and places mean nothing. So the
        mapping belongs to the connection, and ends with it.
        """
        try:
            self.ask(_messages.Store(map=_messages.StoreMap()), "", timeout, None)
        except StoreError as error:
            if error.code not in ("denied", "unsupported", "unavailable"):
                raise
            return
        if not self._descriptors:
            raise StoreError("malformed", f"agent {self.agent} sends no descriptor of its objects")
        self.arena = Arena.open(self._descriptors[0], writable=True)
        self._let_go()

    def _expect(self, wanted: type[Message], until: float) -> Message:
        while (message := self._deframer.next()) is None or isinstance(message, _messages.Event):
            if message is None:
                self._feed(until)
        if isinstance(message, _messages.Reply) and message.request == 0:
            raise problem_of(message.problem) or ValueError("a reply to nothing")
        if not isinstance(message, wanted):
            raise ValueError(f"{message.DESCRIPTOR.name} came where {wanted.DESCRIPTOR.name} was due")
        return message

    def _feed(self, until: float) -> None:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        data, descriptors, _, _ = sockets.recv_fds(self._socket, PIECE, 1)
        self._descriptors += descriptors
        if not data:
            raise EOFError("it has ended the connection")
        self._deframer.feed(data)

    def _lost(self, error: BaseException, timeout: float, memory: Any) -> BaseException:
        """Leave, wait for the end, which says that the memory is this process's, and say what was wrong."""
        self.over = True
        ended = isinstance(error, EOFError | ConnectionError) or self._leave()
        self._close()
        if not ended:
            HELD.append(memory)
            return StoreError(
                "held",
                f"agent {self.agent} hangs, and may still read or write what it was given",
                "do not use that memory again",
            )
        match error:
            case TimeoutError():
                return StoreError("no_answer", f"agent {self.agent} has not answered within {timeout:g} s")
            case EOFError() | OSError():
                return StoreError("lost", f"agent {self.agent} is gone: {error}")
            case DoorError():
                return error_of(error) or error
            case ValueError():
                return StoreError("malformed", f"agent {self.agent} says what cannot be read: {error}")
        return error

    def _leave(self) -> bool:
        """Say nothing more, and tell whether the agent has ended the connection."""
        try:
            self._socket.shutdown(sockets.SHUT_WR)
            until = time.monotonic() + FAREWELL
            while (left := until - time.monotonic()) > 0:
                self._socket.settimeout(left)
                if not self._socket.recv(PIECE):
                    return True
        except TimeoutError:
            return False
        except OSError:
            return True
        return False

    def _close(self) -> None:
        self._let_go()
        self._socket.close()
        if self.arena is not None:
            self.arena.close()
            self.arena = None

    def _let_go(self) -> None:
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()

    def close(self) -> None:
        """End the connection. What is open comes to nothing."""
        self.over = True
        self._leave()
        self._close()
