"""What an engine has asked for and not heard the end of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from meridian.door._events import DoorError, Event, EventKind, problem_of
from meridian.door._messages import Message
from meridian.door._statements import Statement

HandOff: TypeAlias = tuple[bytes, bool]
"""One side of a hand-off that this engine takes part in: the transfer, and whether it was accepted."""


class Answer(Protocol):
    """Where an answer goes: a future, of threads or of asyncio."""

    def done(self) -> bool: ...
    def set_result(self, result: Message, /) -> None: ...
    def set_exception(self, exception: DoorError, /) -> None: ...


class Unheard:
    """Where the answer to a question goes that no caller waits for."""

    def done(self) -> bool:
        return True

    def set_result(self, result: Message, /) -> None: ...
    def set_exception(self, exception: DoorError, /) -> None: ...


@dataclass(slots=True, eq=False)
class Question:
    """A request that was sent. It cannot be unsent."""

    answer: Answer
    deadline: float = 0.0
    begins: HandOff | None = None
    """Blocks that are out from the moment of asking."""
    states: Statement | None = None
    """What the connection is said to be with it."""
    outcome: Message | DoorError | None = None
    abandoned: bool = False
    """Its caller does not wait for the answer any more, and what it begins is not wanted."""

    def settle(self, outcome: Message | DoorError) -> None:
        """Answer it."""
        self.outcome = outcome
        if self.answer.done():  # its caller has given up
            return
        if isinstance(outcome, DoorError):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)


class Outstanding:
    """Questions without a reply, and hand-offs whose blocks are out. Its owner locks it."""

    def __init__(self) -> None:
        self._questions: dict[int, Question] = {}
        self._running: dict[HandOff, None] = {}

    def ask(self, request: int, question: Question, holds: HandOff | None) -> None:
        """Note what is about to be sent, before the agent may say anything of it."""
        self._questions[request] = question
        if holds is not None and holds not in self._running:
            question.begins = holds
            self._running[holds] = None

    def answered(self, reply: Message) -> Question | None:
        """Take note of a reply, and return the question, which the caller settles."""
        question = self._questions.pop(reply.request, None)
        if problem_of(reply.problem) is not None:
            self._undo(question)
        elif reply.WhichOneof("with") == "transfer" and (question is None or question.begins is None):
            self._running[(reply.transfer, True)] = None
        return question

    def happened(self, event: Event) -> None:
        """Take note of an event."""
        if event.kind in (EventKind.READY, EventKind.FREED):
            self._running.pop((event.transfer, event.accepted), None)

    def running(self) -> int:
        """Return how many hand-offs have blocks out."""
        return len(self._running)

    def holds(self, hand_off: HandOff) -> bool:
        """Say whether blocks are out for a hand-off."""
        return hand_off in self._running

    def late(self, now: float) -> list[Question]:
        """Remove and return the questions whose deadline has passed. What they hold stays held."""
        late = []
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            late.append(self._questions.pop(next(iter(self._questions))))
        return late

    def next_deadline(self) -> float | None:
        """Return when the next question will be late. They are asked in the order of their deadlines."""
        return next((question.deadline for question in self._questions.values()), None)

    def lose(self) -> tuple[list[Question], list[Event]]:
        """Forget everything: the connection has ended. Return whom to answer, and what to tell."""
        questions = list(self._questions.values())
        for question in questions:
            if not question.abandoned:  # else only events tell
                self._undo(question)
        why = DoorError("gone", "the connection to the agent has ended")
        events = [event for hand_off in self._running for event in ended(hand_off, why)]
        events.append(Event(EventKind.FENCED, problem=why))
        self._questions, self._running = {}, {}
        return questions, events

    def _undo(self, question: Question | None) -> None:
        if question is not None and question.begins is not None:
            self._running.pop(question.begins, None)


def ended(hand_off: HandOff, why: DoorError) -> Iterator[Event]:
    """Tell that a hand-off has come to nothing."""
    transfer, accepted = hand_off
    if accepted:
        yield Event(EventKind.FAILED, transfer, accepted, why)
    yield Event(EventKind.FREED, transfer, accepted, why)
