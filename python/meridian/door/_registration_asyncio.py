"""Keeps one connection of an engine registered with its agent, by a task.

The task connects, waits for the end, and waits before it tries again; the loop
reads. What is said and heard, and what follows from it, `_conversation` has.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Final

from meridian.door._backoff import FAREWELL, NOT_REGISTERED, Backoff, as_door_error
from meridian.door._connection_asyncio import AsyncConnection
from meridian.door._conversation import UNREAD, Conversation, Effects
from meridian.door._events import DoorError
from meridian.door._frames import Outgoing
from meridian.door._mailbox_asyncio import AsyncMailbox
from meridian.door._messages import Message
from meridian.door._outstanding import HandOff, Question
from meridian.door._statements import Statement

_log: Final = logging.getLogger("meridian.door")


class AsyncRegistration:
    """A connection that is kept. All of it runs in one event loop, that of `open`."""

    def __init__(
        self, socket: str, hello: Message, mailbox: AsyncMailbox, answer_timeout: float, room: int | None
    ) -> None:
        """Tell events to the mailbox; begin nothing new while `room` of them wait, or may come to."""
        self._socket = socket
        self._mailbox = mailbox
        self._room = room
        self._conversation = Conversation(hello, answer_timeout)
        self._stating = asyncio.Lock()  # held around one statement, so that they keep their order
        self._served = asyncio.Event()  # set while the engine serves, and from closing on
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._about_to_ask = 0
        # Of the connection that there is:
        self._link: AsyncConnection | None = None
        self._registered: asyncio.Future[Exception | None] | None = None  # or why it is not

    # What callers do.

    def must_be_new(self) -> None:
        """Refuse to open what was opened, or closed."""
        if self._task is not None or self._conversation.closing:
            raise DoorError("order", "a door opens once", "make another")

    async def open(self, required: bool) -> None:
        """Register. Where the agent is not required to be there, it may come later."""
        self._conversation.patient = not required
        first: asyncio.Future[DoorError | None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(first), name=f"door {self._conversation.engine}")
        if required and (problem := await first) is not None:
            raise problem

    async def close(self, timeout: float) -> None:
        """Leave, and return when the memory is the engine's own again and nothing runs any more."""
        self._conversation.closing = True
        self._closing.set()
        self._served.set()
        if self._task is None:
            self._mailbox.close()
            return
        if self._registered is not None and not self._registered.done():
            self._fail(self._conversation.absent())
        elif self._link is not None:
            self._link.leave()
        await asyncio.wait({self._task}, timeout=timeout)
        if not self._task.done():
            raise DoorError(
                "held", f"after {timeout:g} s the agent has not let go of the memory", "close again"
            )
        if not self._task.cancelled():
            self._task.result()

    @property
    def features(self) -> frozenset[str]:
        return self._conversation.features()

    @property
    def serving(self) -> bool:
        return self._conversation.serving

    def welcome(self) -> Message:
        """Return what the agent that the engine serves with said of itself."""
        return self._conversation.serving_agent()

    async def wait_serving(self, timeout: float) -> None:
        try:
            async with asyncio.timeout(timeout):
                while not self._conversation.serving and not self._conversation.closing:
                    await self._served.wait()
        except TimeoutError:
            raise self._conversation.absent() from None
        if self._conversation.closing:
            raise self._conversation.absent()

    async def state(self, statement: Statement, timeout: float | None) -> None:
        """Say what this connection is, now if the agent is there, and whenever it comes back."""
        async with _deadline(timeout), self._stating:
            question, answer = _question()
            outgoing = self._conversation.state(statement, question, _now())
            if outgoing is not None:
                self._send(outgoing)
                await answer

    async def ask(
        self, message: Message, holds: HandOff | None = None, timeout: float | None = None
    ) -> Message:
        """Ask the agent; what holds blocks and is given up meanwhile is taken back, which events tell."""
        if holds is not None:
            self._must_have_room()
        question: Question | None = None
        async with _deadline(timeout):
            try:
                await self._drained()
                question, answer = _question()
                self._send(self._conversation.ask(message, question, _now(), holds))
                return await answer
            except asyncio.CancelledError:
                self._give_up(question, holds)
                raise

    def say(self, message: Message) -> None:
        """Send what is not answered. Where it cannot be told, the agent does not need it."""
        outgoing = self._conversation.say(message)
        if outgoing is not None:
            self._send(outgoing)

    async def _drained(self) -> None:
        if self._link is not None:
            self._about_to_ask += 1
            try:
                await self._link.drained()
            finally:
                self._about_to_ask -= 1

    def _give_up(self, question: Question | None, holds: HandOff | None) -> None:
        """Take back what a cancelled caller has asked for, or would have."""
        if question is not None:
            self._follow(self._conversation.take_back(question, _now()))
        elif holds is not None:
            self._follow(self._conversation.never_asked(holds))

    def _must_have_room(self) -> None:
        taken = self._conversation.running() + self._about_to_ask + len(self._mailbox)
        if self._room is not None and taken >= self._room:
            raise DoorError(
                "busy", f"{self._room} hand-offs are under way, or events wait to be taken", "take the events"
            )

    def _send(self, outgoing: Outgoing) -> None:
        if self._link is not None:
            self._link.send(*outgoing)
        self._set_alarm()

    # What the task does.

    async def _run(self, first: asyncio.Future[DoorError | None]) -> None:
        try:
            await self._keep(first)
        finally:
            self._conversation.closing = True  # also where this task has failed, or was cancelled
            if not first.done():
                first.set_result(self._conversation.absent())
            self._end()
            self._mailbox.close()

    async def _keep(self, first: asyncio.Future[DoorError | None]) -> None:
        backoff = Backoff(self._conversation.engine, self._socket)
        while not self._conversation.closing:
            try:
                link = await self._register()
            except NOT_REGISTERED as error:
                if not first.done():
                    first.set_result(as_door_error(error, self._socket))
                await self._sleep(backoff.failed(error))
                continue
            if not first.done():
                first.set_result(None)
            backoff.succeeded()
            how = await link.ended
            _log.debug("engine %s: %s", self._conversation.engine, how)
            self._end()
            await self._sleep(backoff.pause())

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._closing.wait()

    async def _register(self) -> AsyncConnection:
        """Connect and say everything."""
        self._must_have_room()
        link = self._link = AsyncConnection(self._socket, self._take, self._fail, self._unread)
        registered = self._registered = asyncio.get_running_loop().create_future()
        try:
            self._follow(self._conversation.begin(link.agent_pid(), _now()))
            await asyncio.wait({registered, link.ended}, return_when=asyncio.FIRST_COMPLETED)
            if not registered.done():
                raise EOFError(link.ended.result())
            if (problem := registered.result()) is not None:
                raise problem
        except NOT_REGISTERED:
            registered.cancel()
            link.leave()
            await asyncio.wait({link.ended}, timeout=FAREWELL)
            self._end()
            raise
        return link

    def _end(self) -> None:
        """Tell everything that the end of a connection means, and let it go."""
        if self._link is not None:
            self._link.close()
        self._follow(self._conversation.end())
        self._link = None

    # What the loop does.

    def _take(self, message: Message) -> None:
        try:
            self._follow(self._conversation.take(message, _now()))
        except (DoorError, OSError) as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Have done with this connection: what came, or did not, makes it good for nothing."""
        if self._registered is not None and not self._registered.done():
            self._registered.set_result(error)
        else:
            self._follow(self._conversation.leave(as_door_error(error, self._socket)))
        if self._link is not None:
            self._link.discard()
            self._link.leave()

    def _unread(self) -> None:
        """Leave an agent that reads nothing, as its link has."""
        self._follow(self._conversation.leave(UNREAD))

    def _set_alarm(self) -> None:
        deadline = self._conversation.deadline()
        if self._alarm is not None and deadline is None:
            self._alarm.cancel()
            self._alarm = None
        elif self._alarm is None and deadline is not None:  # else it is set: deadlines only grow
            self._alarm = asyncio.get_running_loop().call_at(deadline, self._tick)

    def _tick(self) -> None:
        self._alarm = None
        try:
            self._follow(self._conversation.tick(_now()))
        except DoorError as error:
            self._fail(error)

    def _follow(self, effects: Effects) -> None:
        """Do what follows from a step of the conversation."""
        if self._link is not None:
            for outgoing in effects.send:
                self._link.send(*outgoing)
            if effects.leave:
                self._link.leave()
        engine = self._conversation.engine
        if effects.complaint is not None:
            _log.warning("engine %s: the connection is to end: %s", engine, effects.complaint)
        for question, outcome in effects.answers:
            if question.states is not None and question.answer.done() and isinstance(outcome, DoorError):
                _log.warning("engine %s: it is refused, and no call waits to hear so: %s", engine, outcome)
            question.settle(outcome)
        for event in effects.events:
            self._mailbox.put(event)
        if self._conversation.serving or self._conversation.closing:
            self._served.set()
        else:
            self._served.clear()
        if self._conversation.registered and self._registered is not None and not self._registered.done():
            self._registered.set_result(None)
        self._set_alarm()


def _now() -> float:
    return asyncio.get_running_loop().time()


def _question() -> tuple[Question, asyncio.Future[Message]]:
    answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
    return Question(answer), answer


@contextlib.asynccontextmanager
async def _deadline(seconds: float | None) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise DoorError("timeout", f"the agent has not answered within {seconds:g} s") from None
