"""Keeps one connection of an engine registered with its agent, by a thread.

The thread connects, reads, and waits before it tries again; what is said and
heard, and what follows from it, `_conversation` has.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final

from meridian.door._backoff import FAREWELL, NOT_REGISTERED, Backoff, as_door_error
from meridian.door._connection import Connection
from meridian.door._conversation import UNREAD, Conversation, Effects
from meridian.door._events import DoorError, Event
from meridian.door._frames import Outgoing
from meridian.door._messages import Message
from meridian.door._outstanding import HandOff, Question
from meridian.door._statements import Statement

_log: Final = logging.getLogger("meridian.door")


class Registration:
    """A connection that is kept. Any thread may call its methods."""

    def __init__(
        self, socket: str, hello: Message, tell: Callable[[Event], None], answer_timeout: float
    ) -> None:
        self._socket = socket
        self._engine: str = hello.engine
        self._tell = tell
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name=f"door {self._engine}", daemon=True)
        self._stating = threading.Lock()  # held around one statement, so that they keep their order
        self._first: Future[None] = Future()  # how the first attempt went

        self._changed = threading.Condition()  # protects the rest
        self._conversation = Conversation(hello, answer_timeout)
        self._link: Connection | None = None  # what the conversation goes over

    # What callers do.

    def open(self, required: bool) -> None:
        """Register. Where the agent is not required to be there, it may come later."""
        self._conversation.patient = not required
        self._thread.start()
        if required:
            self._first.result()  # the thread's own deadlines bound it

    def close(self, timeout: float) -> None:
        """Leave, and return when the memory is the engine's own again."""
        self.must_not_be_told()
        with self._changed:
            self._conversation.closing = True
            if self._wake >= 0:
                os.eventfd_write(self._wake, 1)
        if self._thread.ident is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                raise DoorError(
                    "held", f"after {timeout:g} s the agent has not let go of the memory", "close again"
                )
        with self._changed:
            if self._wake >= 0:
                os.close(self._wake)
                self._wake = -1

    @property
    def features(self) -> frozenset[str]:
        with self._changed:
            return self._conversation.features()

    @property
    def serving(self) -> bool:
        with self._changed:
            return self._conversation.serving

    def welcome(self) -> Message:
        """Return what the agent that the engine serves with said of itself."""
        with self._changed:
            return self._conversation.serving_agent()

    def wait_serving(self, timeout: float) -> None:
        self.must_not_be_told()
        talk = self._conversation
        with self._changed:
            if not self._changed.wait_for(lambda: talk.serving or talk.closing, timeout) or talk.closing:
                raise talk.absent()

    def state(self, statement: Statement) -> None:
        """Say what this connection is, now if the agent is there, and whenever it comes back."""
        self.must_not_be_told()
        with self._stating:
            question, answer = _question()
            with self._changed:
                self._expect_an_answer()
                outgoing = self._conversation.state(statement, question, time.monotonic())
                link = self._link
            if outgoing is None or link is None:
                return  # the thread says it
            self._send(link, outgoing)
            answer.result()

    def ask(self, message: Message, holds: HandOff | None = None) -> Future[Message]:
        """Send a request; its future is answered, or fails, in bounded time. This does not wait."""
        question, answer = _question()
        with self._changed:
            self._expect_an_answer()
            outgoing = self._conversation.ask(message, question, time.monotonic(), holds)
            link = self._link
        if link is not None:
            self._send(link, outgoing)
        return answer

    def say(self, message: Message) -> None:
        """Send what is not answered. Where it cannot be told, the agent does not need it."""
        with self._changed:
            outgoing = self._conversation.say(message)
            link = self._link
        if outgoing is not None and link is not None:
            self._send(link, outgoing)

    def _send(self, link: Connection, outgoing: Outgoing) -> None:
        link.send(*outgoing)
        self._heed(link)

    def _heed(self, link: Connection) -> None:
        """Leave an agent that reads nothing, as its link has."""
        if link.unread:
            self._leave(link, UNREAD)

    def _leave(self, link: Connection, why: DoorError) -> None:
        # Meanwhile there may be another link, which is not to be left.
        self._follow(lambda _: self._conversation.leave(why) if self._link is link else Effects())

    def must_not_be_told(self) -> None:
        """Refuse a call that waits, from the thread that it would wait for."""
        if threading.current_thread() is self._thread:
            raise DoorError("order", "a function that is told of events must not wait for the agent")

    def _expect_an_answer(self) -> None:
        """Let the thread see a deadline where there was none."""
        if self._conversation.registered and self._conversation.deadline() is None:
            os.eventfd_write(self._wake, 1)

    # What the thread does.

    def _run(self) -> None:
        try:
            self._keep()
        finally:
            with self._changed:
                self._conversation.closing = True  # also where this thread has failed
            if not self._first.done():
                self._first.set_exception(self._conversation.absent())
            self._end()

    def _keep(self) -> None:
        backoff = Backoff(self._engine, self._socket)
        while not self._conversation.closing:
            try:
                link = self._register()
            except NOT_REGISTERED as error:
                if not self._first.done():
                    self._first.set_exception(as_door_error(error, self._socket))
                self._sleep(backoff.failed(error))
                continue
            if not self._first.done():
                self._first.set_result(None)
            backoff.succeeded()
            self._read(link)
            self._end()
            link.close()
            self._sleep(backoff.pause())

    def _sleep(self, seconds: float) -> None:
        if self._conversation.closing:
            return
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        if poll.poll(seconds * 1000):
            os.eventfd_read(self._wake)

    def _register(self) -> Connection:
        """Connect and say everything."""
        link, talk = Connection(self._socket, self._wake), self._conversation
        try:
            with self._changed:
                self._link = link
            self._follow(lambda now: talk.begin(link.agent_pid(), now))
            while not talk.registered:
                self._hear(link.receive(talk.deadline()))
        except BaseException:
            link.leave()
            link.drain(time.monotonic() + FAREWELL)
            self._end()
            link.close()
            raise
        return link

    def _read(self, link: Connection) -> None:
        """Take what comes, until the connection ends."""
        receive = link.receive
        while True:
            if self._conversation.closing:
                link.leave()
            try:
                self._hear(receive(self._deadline()))
                self._heed(link)
            except EOFError as error:
                _log.debug("engine %s: %s", self._engine, error)
                return
            except ValueError as error:
                self._leave(link, as_door_error(error, self._socket))
                receive = link.discard

    def _deadline(self) -> float | None:
        with self._changed:
            return self._conversation.deadline()

    def _hear(self, message: Message | None) -> None:
        """Take a message, or that none came."""
        if message is not None:
            self._follow(lambda now: self._conversation.take(message, now))
        self._follow(self._conversation.tick)

    def _end(self) -> None:
        """Tell everything that the end of a connection means."""
        self._follow(lambda now: self._conversation.end())
        with self._changed:
            self._link = None

    def _follow(self, step: Callable[[float], Effects]) -> None:
        """Take a step of the conversation, and do what follows."""
        with self._changed:
            effects, link = step(time.monotonic()), self._link
            self._changed.notify_all()
        if link is not None:
            for outgoing in effects.send:
                link.send(*outgoing)
            if effects.leave:
                link.leave()
        if effects.complaint is not None:
            _log.warning("engine %s: the connection is to end: %s", self._engine, effects.complaint)
        for question, outcome in effects.answers:
            question.settle(outcome)
        for event in effects.events:
            self._tell(event)


def _question() -> tuple[Question, Future[Message]]:
    answer: Future[Message] = Future()
    answer.set_running_or_notify_cancel()  # what was sent cannot be unsent
    return Question(answer), answer
