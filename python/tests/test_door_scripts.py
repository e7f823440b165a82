"""The conversations of testdata/door, over this package's frames, with a real agent."""

from __future__ import annotations

import abc
import asyncio
import base64
import contextlib
import fcntl
import json
import mmap
import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
from conftest import TESTDATA
from google.protobuf import json_format
from processes import PATIENCE, Agent, owner

from meridian.door import _messages
from meridian.door._connection import Connection
from meridian.door._connection_asyncio import AsyncConnection
from meridian.door._events import NO_TRANSFER, Event, EventKind, events_of
from meridian.door._frames import frame
from meridian.door._messages import Message

SCRIPTS = sorted((TESTDATA / "door").glob("*.json"))
Step = dict[str, Any]
T = TypeVar("T")


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 10


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
@pytest.mark.parametrize("over_asyncio", [False, True], ids=["thread", "asyncio"])
def test_script(
    path: Path, over_asyncio: bool, meridian_binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = json.loads(path.read_text())
    options = script.pop("agent", {})
    assert set(script) == {"about", "steps"}
    assert set(options) <= {"require_leg", "require_cache_leg", "store", "governor"}
    governor = "true" if options.get("governor") else "false"
    monkeypatch.setenv("MERIDIAN_GOVERNOR_ENABLED", governor)
    monkeypatch.setenv(
        "MERIDIAN_DOOR_REQUIRE_CACHE_LEG", "true" if options.get("require_cache_leg") else "false"
    )
    required = ["--require-leg"] if options.get("require_leg") else []
    with contextlib.ExitStack() as running:
        if options.get("store"):
            agent = running.enter_context(owner(meridian_binary, tmp_path / "state"))
        else:
            agent = Agent(meridian_binary, tmp_path / "state", "n", "--no-directory", *required)
            running.callback(agent.stop)
        player = Player(agent.socket, over_asyncio)
        running.callback(player.end)
        for number, step in enumerate(script["steps"]):
            try:
                player.play(step)
            except Exception as error:
                raise AssertionError(f"step {number}, {json.dumps(step)}: {error!r}") from error


class Dialogue(abc.ABC):
    """One connection, its events apart from the rest."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._others: deque[Message] = deque()

    @abc.abstractmethod
    def send(self, data: bytes, descriptor: int | None = None) -> None:
        """Send bytes; the descriptor may be closed then."""

    @abc.abstractmethod
    def leave(self) -> None: ...

    @abc.abstractmethod
    def close(self) -> None: ...

    @abc.abstractmethod
    def _read(self) -> None:
        """Take what comes next; EOFError: the end."""

    def event(self) -> Event:
        while not self._events:
            self._read()
        return self._events.popleft()

    def other(self) -> Message:
        while not self._others:
            self._read()
        return self._others.popleft()

    def end(self) -> None:
        with pytest.raises(EOFError):
            while not self._others:
                self._read()
        assert not self._others, self._others

    def _take(self, message: Message) -> None:
        if isinstance(message, _messages.Event):
            self._events += events_of(message)
        else:
            self._others.append(message)


class ThreadDialogue(Dialogue):
    """Over the connection of `Door`."""

    def __init__(self, socket: Path) -> None:
        super().__init__()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK)
        self._link = Connection(str(socket), self._wake)

    def send(self, data: bytes, descriptor: int | None = None) -> None:
        self._link.send(data, descriptor)

    def leave(self) -> None:
        self._link.leave()

    def close(self) -> None:
        self._link.close()
        os.close(self._wake)

    def _read(self) -> None:
        until = time.monotonic() + PATIENCE
        while (message := self._link.receive(until)) is None:
            assert time.monotonic() < until, "nothing came"
        self._take(message)


class AsyncDialogue(Dialogue):
    """Over the connection of `AsyncDoor`, whose loop runs while something is done with it."""

    def __init__(self, socket: Path) -> None:
        super().__init__()
        self._runner = asyncio.Runner()
        self._came = asyncio.Event()
        self._link = self._run(lambda: AsyncConnection(str(socket), self._heard, self._garbled, lambda: None))
        self._link.ended.add_done_callback(lambda _: self._came.set())

    def send(self, data: bytes, descriptor: int | None = None) -> None:
        self._run(lambda: self._link.send(data, descriptor))

    def leave(self) -> None:
        self._run(self._link.leave)

    def close(self) -> None:
        self._run(self._link.close)
        self._runner.close()

    def _read(self) -> None:
        self._runner.run(self._next())

    async def _next(self) -> None:
        if self._link.ended.done():
            raise EOFError(self._link.ended.result())
        self._came.clear()
        async with asyncio.timeout(PATIENCE):
            await self._came.wait()

    def _heard(self, message: Message) -> None:
        self._take(message)
        self._came.set()

    def _garbled(self, error: ValueError) -> None:
        raise error

    def _run(self, call: Callable[[], T]) -> T:
        async def run() -> T:
            return call()

        return self._runner.run(run())


class Player:
    """Plays steps; testdata/door/README.md has them."""

    def __init__(self, socket: Path, over_asyncio: bool) -> None:
        self._socket = socket
        self._connected = AsyncDialogue if over_asyncio else ThreadDialogue
        self._dialogues: dict[str, Dialogue] = {}
        self._memory: dict[str, mmap.mmap] = {}
        self._variables: dict[str, bytes] = {}

    def end(self) -> None:
        for dialogue in self._dialogues.values():
            dialogue.close()
        for memory in self._memory.values():
            memory.close()

    def play(self, step: Step) -> None:
        step = dict(step)
        verb = next(iter(step))
        name = step.pop(verb)
        play: Callable[..., None] = getattr(self, f"_{verb}")
        play(name, **step)

    def _connect(self, name: str) -> None:
        if name in self._dialogues:
            self._dialogues[name].close()
        self._dialogues[name] = self._connected(self._socket)

    def _send(self, name: str, type: str, message: Step, memfd: Step | None = None) -> None:
        self._send_bytes(name, frame(self._message(type, message)), memfd)

    def _send_bytes(self, name: str, data: bytes, memfd: Step | None) -> None:
        if memfd is None:
            self._dialogues[name].send(data)
            return
        fd = self._lend(**memfd)
        try:
            self._dialogues[name].send(data, fd)
        finally:
            os.close(fd)

    def _lend(self, name: str, bytes: int, sealed: bool = True, file: bool = False) -> int:
        if file:
            with tempfile.TemporaryFile(dir=self._socket.parent) as plain:
                fd = os.dup(plain.fileno())
        else:
            fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, bytes)
        if sealed and not file:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        self._memory[name] = mmap.mmap(fd, bytes)
        return fd

    def _send_hex(self, name: str, hex: str, memfd: Step | None = None) -> None:
        self._send_bytes(name, bytes.fromhex(hex), memfd)

    def _send_zeros(self, name: str, **count: int) -> None:
        self._dialogues[name].send(bytes(count["bytes"]))

    def _expect(self, name: str, type: str, message: Step, save: dict[str, str] | None = None) -> None:
        got = self._dialogues[name].other()
        assert got.DESCRIPTOR.name.lower() == type, got
        want = self._message(type, message)
        assert list(differences(message, want, got)) == [], f"{got} is not {want}"
        if type == "reply":
            assert got.HasField("problem") == ("problem" in message), got
        for field, variable in (save or {}).items():
            self._variables[variable] = getattr(got, field)

    def _event(
        self,
        name: str,
        kind: str,
        transfer: str | None = None,
        accepted: bool = False,
        problem: str | None = None,
    ) -> None:
        got = self._dialogues[name].event()
        id = base64.b64decode(transfer) if transfer else NO_TRANSFER
        code = got.problem.code if got.problem else None
        want = (EventKind[kind.upper()], id, accepted, problem)
        assert (got.kind, got.transfer, got.accepted, code) == want, f"{got} is not {want}"

    def _expect_end(self, name: str) -> None:
        self._dialogues[name].end()

    def _shut(self, name: str) -> None:
        self._dialogues[name].leave()

    def _close(self, name: str) -> None:
        self._dialogues.pop(name).close()

    def _fill(self, name: str, offset: int, bytes: int, byte: int) -> None:
        self._memory[name][offset : offset + bytes] = bytearray([byte]) * bytes

    def _holds(self, name: str, offset: int, bytes: int, byte: int) -> None:
        assert self._memory[name][offset : offset + bytes] == bytearray([byte]) * bytes

    def _flip(self, name: str, **to: str) -> None:
        flipped = bytearray(self._variables[name])
        flipped[-1] ^= 1
        self._variables[to["as"]] = bytes(flipped)

    def _message(self, type: str, fields: Step) -> Message:
        cls = getattr(_messages, type.capitalize())
        return json_format.ParseDict(self._filled(fields), cls())

    def _filled(self, value: Any) -> Any:
        match value:
            case dict():
                return {key: self._filled(inner) for key, inner in value.items()}
            case list():
                return [self._filled(inner) for inner in value]
            case str() if value.startswith("$"):
                return base64.b64encode(self._variables[value[1:]]).decode()
        return value


def differences(named: Step, want: Message, got: Message) -> Iterator[str]:
    """Yield the fields that a step names and that have another value."""
    for field, value in named.items():
        if isinstance(value, dict):
            yield from differences(value, getattr(want, field), getattr(got, field))
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            if len(value) != len(getattr(got, field)):
                yield field
            for inner, wanted, came in zip(value, getattr(want, field), getattr(got, field), strict=False):
                yield from differences(inner, wanted, came)
        elif getattr(want, field) != getattr(got, field):
            yield field
