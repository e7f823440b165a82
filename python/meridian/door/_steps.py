"""The connection over which an engine tells of its steps and hears what is decided."""

from __future__ import annotations

import os
import select
import socket as sockets
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

from meridian._version import __version__
from meridian.door import _decisions, _messages
from meridian.door._backoff import NOT_REGISTERED, Backoff
from meridian.door._connection import PIECE, connect
from meridian.door._conversation import check_welcome, introduce
from meridian.door._decisions import Stays
from meridian.door._events import DoorError, problem_of
from meridian.door._frames import BadFrame, Deframer, frame
from meridian.door._messages import Message
from meridian.door._outbox import Outbox

_MAX_WAITING_BYTES: Final = 4 << 20
"""Of an agent that has not read so much, no decision will come in time."""

_MAX_DECISIONS: Final = 256
"""So many that are not taken are not kept: the engine does not listen any more."""

_MAX_READ_BYTES: Final = 4 << 20
"""So much is read at a time, and so long may a frame be: an agent that floods does not stall the engine."""

LONGEST_WAIT: Final = 0.1
"""Whatever an agent says, a scheduler stands still no longer than so many seconds."""

_HANDSHAKE_TIMEOUT: Final = 10.0

_FD_SETSIZE: Final = 1024
"""What `select` can wait for."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What an engine goes by that is governed."""

    policy: str
    wait: float
    """How long to wait for a decision before a step is planned without it, in seconds."""
    max_think_tokens: int
    min_think_tokens: int
    end_tokens: tuple[int, ...]
    """What ends a thought of this model; none: nothing can."""
    entropy: bool
    """Whether entropies may end a thought."""


class Steps:
    """Steps go, decisions come; an agent that is away is looked for. One thread has it.

    Nothing here waits but `take`, and that as long as it is told to: an engine
    serves whether there is an agent or not. There is no thread behind it; a lost
    agent is looked for in the calls of the engine, each of which costs at most
    an attempt to connect to a Unix socket.

    ::

              due                     Welcome
        away ─────► greeting ─────────────────────► governed
          ▲            │ refused, nothing in time      │ the end, nonsense, an agent that does not read
          └────────────┴───────────────────────────────┘
    """

    def __init__(
        self,
        socket: str | os.PathLike[str],
        engine: str,
        *,
        model: str,
        measures: bool = False,
        blocks: int = 0,
        block_tokens: int = 0,
        block_bytes: int = 0,
        max_running: int = 0,
        step_tokens: int = 0,
        forces: bool = False,
        forks: bool = False,
        swaps: bool = False,
        remembers: bool = False,
        software: str = f"meridian-python {__version__}",
        wait: float | None = None,
    ) -> None:
        """Tell what the engine has and can do; docs/wire.md explains each. The agent is looked for.

        With `wait` its terms say that many seconds, whatever the agent says: a long one makes runs
        of a test the same.
        """
        hello = _messages.Hello(engine=engine, software=software)
        hello.steps.CopyFrom(
            _messages.Steps(
                model=model,
                measures=measures,
                blocks=blocks,
                block_tokens=block_tokens,
                block_bytes=block_bytes,
                max_running=max_running,
                step_tokens=step_tokens,
                forces=forces,
                forks=forks,
                swaps=swaps,
                remembers=remembers,
            )
        )
        introduce(hello)
        self._hello: Final = frame(hello)
        self._path: Final = os.fspath(socket)
        self._wait_always: Final = wait
        self._backoff: Final = Backoff(engine, self._path)
        self._socket: sockets.socket | None = None
        self._due = 0.0  # when to look for the agent, or, in a greeting, to give it up
        self._last_step = self._last_taken = 0
        self._decisions: deque[Message | Stays] = deque()
        self._closed = False
        self.terms: Terms | None = None
        """None: there is no governor now."""
        self.connections = 0
        """How often a governor was found. It knows nothing of what was told to the one before."""
        self.lost = 0
        """How often one was lost, whatever the reason."""
        self.advance()

    @property
    def governed(self) -> bool:
        """Whether a governor listens."""
        return self.terms is not None

    def send(self, step: Message) -> bool:
        """Tell of a step. False: no agent listens. This never waits, and reads nothing that has come."""
        if self.terms is None or self._outbox.left:
            self.advance()
        if self.terms is None:
            return False
        if self._outbox.waiting_bytes > _MAX_WAITING_BYTES:
            self._lose(DoorError("no_answer", "the agent does not read what it is told"))
            return False
        self._last_step = step.number
        try:
            self._outbox.put(frame(step), None, time.monotonic())
        except BadFrame as error:
            self._lose(error)
            return False
        return True

    def take(self, wait: float = 0.0) -> list[Message | Stays]:
        """Return the decisions that have come, oldest first.

        Wait at most so many seconds for the one that follows from the last step.
        """
        self.advance()
        if wait > 0 and self.terms is not None and not self._answered():
            until = time.monotonic() + wait
            while (left := until - time.monotonic()) > 0 and self.terms is not None and not self._answered():
                self._wait(left)
                self.advance()
        taken = list(self._decisions)
        self._decisions.clear()
        if taken:
            self._last_taken = taken[-1].step
        return taken

    def advance(self) -> None:
        """Do what can be done without waiting: look for the agent, write what waits, read what has come."""
        if self._closed:
            return
        now = time.monotonic()
        try:
            if self._socket is None:
                if now < self._due:
                    return
                self._begin(now)
            self._outbox.write(now)
            if (stalls_at := self._outbox.stalls_at()) is not None and now > stalls_at:
                raise DoorError("no_answer", "the agent has read nothing for too long")
            self._read()
            if self.terms is None and now > self._due:
                raise DoorError("no_answer", f"the agent at {self._path} does not answer Hello")
        except NOT_REGISTERED as error:
            self._lose(error)

    def close(self) -> None:
        """Leave. The agent forgets the engine's sequences."""
        self._closed = True
        self._drop()

    def _answered(self) -> bool:
        newest = self._decisions[-1].step if self._decisions else self._last_taken
        return newest >= self._last_step

    def _begin(self, now: float) -> None:
        self._socket = connect(self._path)
        self._outbox = Outbox(self._socket)
        self._deframer = Deframer(_decisions.parse)
        self._last_step = self._last_taken = 0
        self._due = now + _HANDSHAKE_TIMEOUT
        self._outbox.put(self._hello, None, now)

    def _read(self) -> None:
        """Take what has come."""
        assert self._socket is not None
        for _ in range(_MAX_READ_BYTES // PIECE):
            try:
                data = self._socket.recv(PIECE)
            except BlockingIOError:
                return
            if not data:
                raise EOFError("the agent has ended the connection")
            self._deframer.feed(data)
            if self._deframer.waiting_bytes > 2 * _MAX_READ_BYTES:
                raise DoorError("malformed", f"a frame of more than {_MAX_READ_BYTES} bytes")
            while (message := self._deframer.next()) is not None:
                self._heard(message)
            if len(data) < PIECE:
                return

    def _heard(self, message: Message) -> None:
        if self.terms is not None and isinstance(message, (Stays, _messages.Decision)):
            if len(self._decisions) >= _MAX_DECISIONS:
                raise DoorError("busy", f"{_MAX_DECISIONS} decisions wait, and the engine takes none")
            self._decisions.append(message)
        elif isinstance(message, _messages.Reply):
            if problem := problem_of(message.problem):
                raise problem
        elif self.terms is None:
            if not isinstance(message, _messages.Welcome):
                raise ValueError(f"{message.DESCRIPTOR.name} came where Welcome was due")
            self._welcomed(message)

    def _welcomed(self, welcome: Message) -> None:
        check_welcome(welcome)
        if "steps" not in welcome.features:
            raise DoorError("unsupported", f"agent {welcome.agent} governs no engine")
        told = welcome.governor
        self.terms = Terms(
            policy=told.policy,
            wait=min(told.wait_us / 1e6, LONGEST_WAIT) if self._wait_always is None else self._wait_always,
            max_think_tokens=told.max_think_tokens,
            min_think_tokens=told.min_think_tokens,
            end_tokens=tuple(told.end_tokens),
            entropy=told.entropy,
        )
        self.connections += 1
        self._backoff.succeeded()

    def _wait(self, seconds: float) -> None:
        """Wait for something to read, or for room to write what waits."""
        assert self._socket is not None
        writes = self._outbox.waiting_bytes > 0
        if self._socket.fileno() < _FD_SETSIZE:
            select.select([self._socket], [self._socket] if writes else [], [], seconds)
            return
        poll = select.poll()  # it takes any descriptor, but counts in milliseconds
        poll.register(self._socket, select.POLLIN | (select.POLLOUT if writes else 0))
        poll.poll(seconds * 1000)

    def _lose(self, error: Exception) -> None:
        if self.terms is not None:
            self.lost += 1
        self._drop()
        self._due = time.monotonic() + self._backoff.failed(error)

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self.terms = None
        self._decisions.clear()
