"""What one part of an engine and its agent say to each other.

::

           begin                  welcome, all said                       end
    (away) ─────► registering ───────────────────────► registered ───────────────────┐
       ▲              │ a refusal, nonsense, nothing in time           FAILED, FREED of all; FENCED
       └──────────────┴──────────────────────────────────────────────────────────────┘

There is no socket, clock, thread or task in it: a shell tells it what came and
when, and does what follows. There are two, `_registration` with a thread and
`_registration_asyncio` with a task.

The agent ends a connection only when nothing of it touches the engine's memory
any more, and a dead agent touches nothing: so the end of a connection means that
the memory is the engine's own. An agent that hangs may touch it, and is left: it is
told nothing more, and the engine does not serve, but what it has is not given back
before the end.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Final

from meridian.door import _messages
from meridian.door._events import DoorError, Event, EventKind, events_of, problem_of
from meridian.door._frames import BadFrame, Outgoing, frame
from meridian.door._messages import Message
from meridian.door._outstanding import HandOff, Outstanding, Question, Unheard, ended
from meridian.door._statements import Statement

PROTOCOL_VERSION: Final = 1

FEATURES: Final = frozenset({"refusals", "status", "store", "cache", "chunks", "steps"})
"""What this client can do besides; docs/wire.md tells what they mean."""

UNREAD: Final = DoorError("no_answer", "the agent does not read what it is told")
"""Why a link was left that leaves by itself."""

_HANDSHAKE_TIMEOUT: Final = 20.0  # longer than an agent may take to fence an engine that has just died


@dataclass(slots=True)
class Effects:
    """What follows. The shell does it, outside any lock."""

    send: list[Outgoing] = field(default_factory=list)
    answers: list[tuple[Question, Message | DoorError]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    leave: bool = False
    """Nothing more is to be sent."""
    complaint: DoorError | None = None
    """Why the connection is to end."""


class Conversation:
    """One connection of an engine after the other. Its owner locks it."""

    def __init__(self, hello: Message, answer_timeout: float) -> None:
        introduce(hello)
        self.engine: Final[str] = hello.engine
        self.registered = False
        self.serving = False
        self.left = False
        """Nothing more is said in this connection: only its end is waited for."""
        self.patient = False
        """Set by the shell: a statement that is refused is said again, in the next connection."""
        self.closing = False
        """Set by the shell, and never reset."""
        self.welcome: Message | None = None
        """What the agent that is talked to says of itself."""
        self._hello = frame(hello)
        self._answer_timeout = answer_timeout
        self._requests = itertools.count(1)
        self._said: list[Statement] = []
        self._outstanding = Outstanding()
        # Of the connection that is being registered:
        self._agent_pid = 0
        self._until: float | None = None
        self._repeated = 0  # how many of the statements were said in it
        self._early: list[Message] = []  # events that came before the last answer

    # What the engine wants.

    def absent(self) -> DoorError:
        """Say why nothing can be asked now."""
        if self.closing:
            return DoorError("closed", "this door is closed")
        return DoorError(
            "not_serving",
            f"engine {self.engine} is not serving: the agent is away or hangs, or a rank is away",
        )

    def serving_agent(self) -> Message:
        """Return what the agent that the engine serves with said of itself."""
        if self.welcome is None or not self.serving or self.closing:
            raise self.absent()
        return self.welcome

    def features(self) -> frozenset[str]:
        """Return what this client and the agent that is talked to both can do."""
        return frozenset() if self.welcome is None else FEATURES.intersection(self.welcome.features)

    def running(self) -> int:
        """Return how many hand-offs have blocks out."""
        return self._outstanding.running()

    def state(self, statement: Statement, question: Question, now: float) -> Outgoing | None:
        """Say what this connection is. None: it will be said as soon as the agent is there.

        The question fails where the agent refuses the statement, which is not
        said again then, unless this engine is patient.
        """
        if self.closing:
            raise self.absent()
        outgoing = None
        if self.registered and not self.left:
            question.states = statement
            outgoing = self._ask(statement.message(self._agent_pid), question, now, None)
            outgoing = outgoing._replace(descriptor=statement.descriptor)
        self._said.append(statement)
        return outgoing

    def ask(self, message: Message, question: Question, now: float, holds: HandOff | None = None) -> Outgoing:
        """Ask an agent that the engine serves with. The question is settled in bounded time."""
        if not self.registered or not self.serving or self.closing:
            raise self.absent()
        return self._ask(message, question, now, holds)

    def say(self, message: Message) -> Outgoing | None:
        """Tell what is not answered. Where it cannot be told, the agent does not need it."""
        if not self.registered or not self.serving or self.closing:
            return None
        return Outgoing(_frame(message))

    def take_back(self, question: Question, now: float) -> Effects:
        """Give up what a question begins. READY, or FAILED and FREED, tell how it ends: now, or later."""
        question.abandoned = True
        return Effects() if question.outcome is None else self._given_up(question, question.outcome, now)

    def never_asked(self, holds: HandOff) -> Effects:
        """Tell the end of what the agent was not asked for."""
        if self._outstanding.holds(holds):  # another call has asked for it
            return Effects()
        return Effects(events=list(ended(holds, DoorError("cancelled", "the agent was not asked"))))

    def _ask(self, message: Message, question: Question, now: float, holds: HandOff | None) -> Outgoing:
        message.request = next(self._requests)
        outgoing = Outgoing(_frame(message))
        question.deadline = now + self._answer_timeout
        self._outstanding.ask(message.request, question, holds)
        return outgoing

    # What becomes of a connection.

    def begin(self, agent_pid: int, now: float) -> Effects:
        """Speak first: there is a connection."""
        self.left = False
        self._agent_pid, self._until = agent_pid, now + _HANDSHAKE_TIMEOUT
        self._repeated, self._early = 0, []
        return Effects(send=[Outgoing(self._hello)])

    def take(self, message: Message, now: float) -> Effects:
        """Hear a message. DoorError, OSError, ValueError: the connection is good for nothing."""
        if not self.registered:
            return self._greeted(message)
        if isinstance(message, _messages.Reply):
            return self._answered(message, now)
        if isinstance(message, _messages.Event):
            return self._happened([message])
        raise BadFrame(f"an agent sends no {message.DESCRIPTOR.name} now")

    def deadline(self) -> float | None:
        """Return when to call `tick`."""
        return self._outstanding.next_deadline() if self.registered else self._until

    def tick(self, now: float) -> Effects:
        """Give up what was not answered in time. DoorError: the connection is good for nothing."""
        if not self.registered:
            self._must_go_on()
            if self._until is not None and self._until <= now:
                raise DoorError("no_answer", "the agent does not answer")
            return Effects()
        late = self._outstanding.late(now)
        why = DoorError("no_answer", f"the agent has not answered within {self._answer_timeout:g} s")
        effects = self.leave(why) if late else Effects()
        effects.answers += [_unanswered(question, why) for question in late]
        return effects

    def leave(self, why: DoorError) -> Effects:
        """Say nothing more in a registered connection. What was asked stays open until it ends."""
        if not self.registered or self.left or self.closing:
            return Effects()
        self.left, self.serving = True, False
        return Effects(leave=True, complaint=why)

    def end(self) -> Effects:
        """Forget the connection: it has ended. Only what was registered is told to be lost."""
        was_registered = self.registered
        self.registered = self.serving = False
        self.welcome, self._until = None, None
        if not was_registered:
            return Effects()
        questions, events = self._outstanding.lose()
        why = DoorError("lost", "the connection to the agent has ended before it answered")
        return Effects(answers=[_unanswered(question, why) for question in questions], events=events)

    def _greeted(self, message: Message) -> Effects:
        """Hear the one message that must come now. A Reply with a problem may come instead of it."""
        self._must_go_on()
        if isinstance(message, _messages.Event):
            self._early.append(message)
            return Effects()
        if isinstance(message, _messages.Reply) and (problem := problem_of(message.problem)):
            raise problem
        wanted = _messages.Welcome if self.welcome is None else _messages.Reply
        if not isinstance(message, wanted):
            raise BadFrame(f"{message.DESCRIPTOR.name} came where {wanted.__name__} was due")
        if self.welcome is None:
            check_welcome(message)
            self.welcome = message
        return self._repeat()

    def _repeat(self) -> Effects:
        """Say the next thing that was said before; after the last one the connection is registered."""
        if self._repeated == len(self._said):
            effects = self._happened(self._early)
            self.registered, self._until = True, None
            return effects
        statement = self._said[self._repeated]
        self._repeated += 1
        message = statement.message(self._agent_pid)
        message.request = next(self._requests)
        return Effects(send=[Outgoing(_frame(message), statement.descriptor)])

    def _must_go_on(self) -> None:
        if self.closing:
            raise self.absent()

    def _answered(self, reply: Message, now: float) -> Effects:
        problem = problem_of(reply.problem)
        question = self._outstanding.answered(reply)
        if question is None:
            return Effects(complaint=problem)
        if problem is not None and question.states is not None:
            if self.patient:
                effects = self.leave(problem)
                effects.answers.append(_unanswered(question, problem))
                return effects
            self._said.remove(question.states)
        outcome = problem or reply
        effects = self._given_up(question, outcome, now) if question.abandoned else Effects()
        effects.answers.append((question, outcome))
        return effects

    def _given_up(self, question: Question, outcome: Message | DoorError, now: float) -> Effects:
        """See to the end of an answered question whose caller has given up."""
        begun = question.begins
        if begun is None:
            return self._decline(outcome, now)
        if isinstance(outcome, DoorError):
            told_otherwise = outcome.code == "no_answer"  # it stays held until the connection ends
            return Effects() if told_otherwise else Effects(events=list(ended(begun, outcome)))
        if not self.registered or self.left or not self._outstanding.holds(begun):
            return Effects()  # its end was told, or comes with that of the connection
        transfer, accepted = begun
        cancel = _messages.Cancel(**{"accepted" if accepted else "offered": transfer})
        return Effects(send=[self._ask(cancel, Question(Unheard()), now, None)])

    def _decline(self, outcome: Message | DoorError, now: float) -> Effects:
        """Give back what was found for a caller that has given up."""
        if isinstance(outcome, DoorError) or not outcome.found.ticket or not self.registered or self.left:
            return Effects()
        unused = _messages.Cancel(unused_ticket=outcome.found.ticket)
        return Effects(send=[self._ask(unused, Question(Unheard()), now, None)])

    def _happened(self, messages: list[Message]) -> Effects:
        events = [event for message in messages for event in events_of(message)]
        for event in events:
            self._outstanding.happened(event)
            if event.kind in (EventKind.SERVING, EventKind.FENCED):
                self.serving = event.kind is EventKind.SERVING and not self.left
        # After FENCED the end of the connection follows, and tells of it once.
        return Effects(events=[event for event in events if event.kind is not EventKind.FENCED])


def introduce(hello: Message) -> None:
    """Say in a Hello what this client speaks and can do."""
    hello.low_version = hello.high_version = PROTOCOL_VERSION
    hello.features.extend(sorted(FEATURES))


def check_welcome(welcome: Message) -> None:
    """Refuse an agent that speaks another version."""
    if welcome.version != PROTOCOL_VERSION:
        raise DoorError(
            "version", f"the agent speaks version {welcome.version}, this client {PROTOCOL_VERSION}"
        )


def _unanswered(question: Question, why: DoorError) -> tuple[Question, Message | DoorError]:
    """Settle a question without the agent. What was stated is no failure: it will be said again."""
    return question, _messages.Reply() if question.states is not None else why


def _frame(message: Message) -> bytes:
    try:
        return frame(message)
    except BadFrame as error:
        raise DoorError("malformed", str(error)) from None
