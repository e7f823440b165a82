"""The conversation at the engine door, without sockets: whatever happens, each hand-off ends once."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field

import pytest
from fakeagent import SERVING, WELCOME

from meridian.door import Accept, Control, DoorError, Event, EventKind, Layer, Offer, Publication, _messages
from meridian.door._conversation import Conversation, Effects
from meridian.door._frames import Deframer, Outgoing
from meridian.door._messages import Message
from meridian.door._outstanding import HandOff, Question
from meridian.door._statements import Published, hello

ANSWER_TIMEOUT = 10.0
PUBLICATION = Publication("bf16", [Layer(8, 128)], 16, 64, tp=1)


def test_what_was_said_is_said_again() -> None:
    talk = Conversation(hello("e", "test", Control(), None), ANSWER_TIMEOUT)
    assert talk.state(Published(PUBLICATION), Question(Future()), 0) is None
    for life in range(3):
        assert [type(m) for m in said(talk.begin(1, life).send)] == [_messages.Hello]
        (publish,) = said(talk.take(WELCOME, life).send)
        assert isinstance(publish, _messages.Publish)
        assert talk.take(SERVING, life).events == []  # it comes before the answer, and is told after it
        assert talk.take(_messages.Reply(request=publish.request), life).events == [Event(EventKind.SERVING)]
        assert talk.serving
        assert [event.kind for event in talk.end().events] == [EventKind.FENCED]


def test_a_statement_that_is_refused_is_not_said_again() -> None:
    talk = registered()
    answer: Future[Message] = Future()
    outgoing = talk.state(Published(PUBLICATION), Question(answer), 0)
    assert outgoing is not None
    (publish,) = said([outgoing])
    ((question, problem),) = talk.take(reply(publish, "shape"), 0).answers
    question.settle(problem)
    assert isinstance(answer.exception(), DoorError)
    talk.end()
    talk.begin(1, 0)
    assert talk.take(WELCOME, 0).send == []
    assert talk.registered


def test_an_agent_that_never_welcomes() -> None:
    talk = Conversation(hello("e", "test", Control(), None), ANSWER_TIMEOUT)
    talk.begin(1, 5)
    deadline = talk.deadline()
    assert deadline is not None
    assert talk.tick(deadline - 1) == Effects()
    with pytest.raises(DoorError, match="does not answer"):
        talk.tick(deadline)
    assert talk.end() == Effects()  # nothing was registered, so nothing is lost


def test_a_statement_that_is_cut_off_is_no_failure() -> None:
    talk = registered()
    talk.state(Published(PUBLICATION), Question(Future()), 0)
    ((_, outcome),) = talk.end().answers
    assert not isinstance(outcome, DoorError)
    talk.begin(1, 0)
    assert [type(m) for m in said(talk.take(WELCOME, 0).send)] == [_messages.Publish]


def test_an_accept_may_end_before_its_answer() -> None:
    talk = registered()
    about = (bytes([7] * 16), True)
    (accept,) = said(
        [talk.ask(Accept(b"t", [1], [[0]]).message(), Question(Future()), 0, about)],
    )
    talk.take(event(EventKind.READY, about), 0)
    talk.take(_messages.Reply(request=accept.request, transfer=about[0]), 0)
    assert [event.kind for event in talk.end().events] == [EventKind.FENCED]


def test_an_agent_that_hangs_is_left() -> None:
    talk = registered()
    about = (bytes([7] * 16), False)
    question = Question(Future())
    talk.ask(Offer(about[0], [1], [[0]], layers=1).message(), question, 0, about)
    effects = talk.tick(ANSWER_TIMEOUT)
    assert effects.leave and effects.complaint is not None and effects.complaint.code == "no_answer"
    for late in (SERVING, _messages.Reply(request=99), event(EventKind.READY, (bytes(16), True))):
        assert not talk.take(late, 11).send and not talk.serving and talk.registered
    assert talk.take_back(question, 11) == Effects(), "its end comes with that of the connection"
    assert talk.state(Published(PUBLICATION), Question(Future()), 11) is None
    assert talk.say(_messages.Step()) is None
    for asks in (talk.serving_agent, lambda: talk.ask(_messages.Cancel(), Question(Future()), 11)):
        with pytest.raises(DoorError, match="not serving"):
            asks()
    assert talk.leave(DoorError("no_answer", "again")) == Effects()
    assert [event.kind for event in talk.end().events] == [EventKind.FREED, EventKind.FENCED]
    talk.begin(1, 12)
    assert [type(m) for m in said(talk.take(WELCOME, 12).send)] == [_messages.Publish]


def test_one_who_is_patient_says_again_what_was_refused() -> None:
    talk = registered()
    talk.patient = True
    outgoing = talk.state(Published(PUBLICATION), Question(Future()), 0)
    assert outgoing is not None
    (publish,) = said([outgoing])
    effects = talk.take(reply(publish, "busy"), 0)
    assert [type(outcome) for _, outcome in effects.answers] == [_messages.Reply]
    assert effects.leave and effects.complaint is not None and effects.complaint.code == "busy"
    assert not talk.serving
    talk.end()
    talk.begin(1, 0)
    assert [type(m) for m in said(talk.take(WELCOME, 0).send)] == [_messages.Publish]


@pytest.mark.parametrize("seed", range(300))
def test_each_hand_off_ends_once(seed: int) -> None:
    world = World(random.Random(seed))
    for _ in range(120):
        world.step()
    world.follow(world.talk.end())
    for call in world.calls:
        assert call.question.outcome is not None
        assert len(call.ends) == call.due_ends(), f"seed {seed}: {call}"


def registered() -> Conversation:
    talk = Conversation(hello("e", "test", Control(), None), ANSWER_TIMEOUT)
    talk.begin(1, 0)
    talk.take(WELCOME, 0)
    talk.take(SERVING, 0)
    assert talk.registered and talk.serving
    return talk


def said(send: list[Outgoing]) -> Iterator[Message]:
    for outgoing in send:
        deframer = Deframer()
        deframer.feed(outgoing.wire)
        yield deframer.next()


def reply(request: Message, code: str = "") -> Message:
    m = _messages.Reply(request=request.request)
    if code:
        m.problem.code = code
    return m


def event(kind: EventKind, hand_off: HandOff) -> Message:
    m = _messages.Event(kinds=[kind], transfers=hand_off[0], accepted=[hand_off[1]])
    m.problems.add()
    return m


@dataclass
class Call:
    """What a caller has asked for, and heard."""

    about: HandOff
    question: Question
    given_up: bool = False
    ends: list[EventKind] = field(default_factory=list)

    def due_ends(self) -> int:
        """Return how many events tell that the blocks are the engine's: none where an error has told it."""
        problem = self.question.outcome
        refused = isinstance(problem, DoorError) and problem.code != "no_answer"
        return 0 if refused and not self.given_up else 1


class World:
    """A caller, an agent and time. The agent may touch the blocks of what it was asked and has not ended."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.now = 0.0
        self.talk = registered()
        self.calls: list[Call] = []
        self.inbox: list[Message] = []
        self.running: list[HandOff] = []

    def step(self) -> None:
        actions = [self.ask, self.ask, self.answer, self.answer, self.finish, self.give_up, self.wait]
        if self.rng.random() < (0.2 if self.talk.left else 0.05):
            actions = [self.restart]
        self.rng.choice(actions)()

    def follow(self, effects: Effects) -> None:
        assert not (effects.send and self.talk.left), "nothing that is sent to it arrives"
        self.inbox += said(effects.send)
        for question, outcome in effects.answers:
            question.settle(outcome)
        for told in effects.events:
            if told.kind not in (EventKind.READY, EventKind.FREED):
                continue
            about = (told.transfer, told.accepted)
            if self.talk.registered:
                assert about not in self.running, "freed, and the agent may touch it"
                assert about not in [about_of(m) for m in self.inbox], "freed, and the agent may begin it"
            next(call for call in self.calls if call.about == about).ends.append(told.kind)

    def ask(self) -> None:
        id, accepted = self.rng.randbytes(16), self.rng.random() < 0.5
        offer, accept = Offer(id, [1], [[0]], layers=1), Accept(b"MRDT\x01" + id, [1], [[0]])
        call = Call((id, accepted), Question(Future()))
        message = accept.message() if accepted else offer.message()
        if self.talk.left:
            with pytest.raises(DoorError, match="not serving"):
                self.talk.ask(message, call.question, self.now, call.about)
            return
        self.calls.append(call)
        self.inbox += said([self.talk.ask(message, call.question, self.now, call.about)])

    def answer(self) -> None:
        if not self.inbox:
            return
        request = self.inbox.pop(self.rng.randrange(len(self.inbox)))
        if isinstance(request, _messages.Cancel):
            what = (request.accepted or request.offered, bool(request.accepted))
            self.follow(self.talk.take(reply(request, "" if what in self.running else "unknown"), self.now))
            self._end(what, EventKind.FREED)
        elif self.rng.random() < 0.3:
            self.follow(self.talk.take(reply(request, "declined"), self.now))
        else:
            answer, about = reply(request), about_of(request)
            assert about is not None
            self.running.append(about)
            if about[1]:
                answer.transfer = about[0]
            else:
                answer.ticket = b"t"
            self.follow(self.talk.take(answer, self.now))

    def finish(self) -> None:
        if self.running:
            about = self.rng.choice(self.running)
            self._end(
                about, self.rng.choice([EventKind.READY, EventKind.FREED]) if about[1] else EventKind.FREED
            )

    def _end(self, about: HandOff, kind: EventKind) -> None:
        if about in self.running:
            self.running.remove(about)
            self.follow(self.talk.take(event(kind, about), self.now))

    def give_up(self) -> None:
        """Cancel a call that is not answered, or whose answer has not been looked at yet."""
        waiting = [call for call in self.calls[-8:] if not call.given_up]
        if waiting:
            call = self.rng.choice(waiting)
            call.given_up = True
            self.follow(self.talk.take_back(call.question, self.now))

    def wait(self) -> None:
        self.now += self.rng.choice([0.1, 1.0, 4.0])
        self.follow(self.talk.tick(self.now))

    def restart(self) -> None:
        self.inbox, self.running = [], []
        self.follow(self.talk.end())
        self.talk.begin(1, self.now)
        for message in (WELCOME, SERVING):
            self.talk.take(message, self.now)


def about_of(request: Message) -> HandOff | None:
    match request.DESCRIPTOR.name:
        case "Offer":
            return request.transfer, False
        case "Accept":
            return request.ticket[5:], True
    return None
