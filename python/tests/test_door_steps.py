"""The connection for steps, beside an agent that is made up, that hangs, lies, and dies."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import waiting
from fakeagent import FakeAgent
from processes import PATIENCE

from meridian.door import Steps, _decisions, _messages, _outbox
from meridian.door._columns import Columns
from meridian.door._frames import frame
from meridian.door._messages import Message

WELCOME = _messages.Welcome(version=1, agent="n", incarnation=bytes(16), features=["steps"])
WELCOME.governor.policy = "meridian"
WELCOME.governor.wait_us = 500
WELCOME.governor.max_think_tokens = 100
WELCOME.governor.end_tokens.extend([7, 8])


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[FakeAgent]:
    fake = FakeAgent(tmp_path / "door.sock")
    fake.sayings = [frame(WELCOME)] * 2
    fake.answer = lambda step: frame(_messages.Decision(step=step.number, order=list(step.sequences)))
    yield fake
    fake.close()


def until(steps: Steps, what: Callable[[], bool]) -> None:
    def comes_about() -> bool:
        if what():
            return True
        steps.advance()
        return what()

    waiting.until("it comes about", comes_about)


def step(number: int, **columns: object) -> Message:
    return _messages.Step(number=number, **columns)


def test_steps_are_answered_by_decisions(agent: FakeAgent) -> None:
    steps = Steps(agent.path, "e", model="m", blocks=4, max_running=2, forces=True)
    until(steps, lambda: steps.governed)
    assert steps.terms is not None and steps.terms.end_tokens == (7, 8)
    assert (steps.terms.wait, steps.terms.max_think_tokens) == (0.0005, 100)
    hello = agent.hellos[0]
    assert (hello.engine, hello.steps.model, hello.steps.blocks, hello.steps.forces) == ("e", "m", 4, True)
    for number in (1, 2):
        assert steps.send(step(number, sequences=[number], counts=[0]))
        (decided,) = steps.take(PATIENCE)
        assert decided.step == number and list(decided.order) == [number]
    assert steps.take() == []
    assert steps.connections == 1
    steps.close()
    assert not steps.send(step(3))


def test_steps_do_not_wait(agent: FakeAgent) -> None:
    steps = Steps(agent.path, "e", model="m")
    until(steps, lambda: steps.governed)
    with agent.hanging():
        assert steps.send(step(1)) and len(steps.take(PATIENCE)) == 1  # it was about to read this one
        assert steps.send(step(2))
        began = time.monotonic()
        assert steps.take(0.01) == []
        assert time.monotonic() - began < PATIENCE / 2
        number = 2
        while steps.send(step(number := number + 1, tokens=[1] * 50_000)):
            assert number < 10_000, "what the agent does not read is kept without bound"
    assert not steps.governed and steps.lost == 1
    steps.close()


def test_an_agent_that_reads_nothing_for_long_is_left(
    agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_outbox, "_STALL_TIMEOUT", 0.2)
    steps = Steps(agent.path, "e", model="m")
    until(steps, lambda: steps.governed)
    with agent.hanging():
        assert steps.send(step(1)) and len(steps.take(PATIENCE)) == 1  # it was about to read this one
        number = 1
        while steps._outbox.waiting_bytes == 0:  # what the socket takes went
            assert steps.send(step(number := number + 1, tokens=[1] * 50_000))
        until(steps, lambda: steps.lost == 1)
    steps.close()


def test_a_mad_agent_does_not_stall_the_engine(agent: FakeAgent) -> None:
    mad = _messages.Welcome()
    mad.CopyFrom(WELCOME)
    mad.governor.wait_us = (1 << 32) - 1
    agent.sayings = [frame(mad)] * 3
    agent.answer = lambda step: b"\xff\xff\xff\x00\x10\x00" + bytes(12 << 20)
    steps = Steps(agent.path, "e", model="m")
    until(steps, lambda: steps.governed)
    assert steps.terms is not None and steps.terms.wait <= 0.1
    assert steps.send(step(1))
    until(steps, lambda: steps.lost == 1)
    steps.close()


def test_a_test_waits_as_long_as_it_wants(agent: FakeAgent) -> None:
    agent.sayings = [frame(WELCOME)]
    steps = Steps(agent.path, "e", model="m", wait=7.5)
    until(steps, lambda: steps.governed)
    assert steps.terms is not None and steps.terms.wait == 7.5
    steps.close()


def test_no_agent(tmp_path: Path) -> None:
    steps = Steps(tmp_path / "none.sock", "e", model="m")
    assert not steps.governed and not steps.send(step(1)) and steps.take(0.001) == []
    late = FakeAgent(tmp_path / "none.sock")
    late.sayings = [frame(WELCOME)]
    try:
        until(steps, lambda: steps.governed)
    finally:
        steps.close()
        late.close()


def test_a_new_connection_is_told_from_the_old_one(agent: FakeAgent) -> None:
    agent.answer = lambda step: frame(_messages.Welcome()) if step.number == 1 else b"\xff" * 8
    steps = Steps(agent.path, "e", model="m")
    until(steps, lambda: steps.governed)
    assert steps.send(step(1))  # a second Welcome says nothing
    assert steps.send(step(2))  # what is no frame ends the connection
    until(steps, lambda: steps.connections == 2)
    assert steps.lost == 1 and steps.governed
    steps.close()


@pytest.mark.parametrize(
    "saying",
    [
        frame(_messages.Welcome(version=1, agent="n")),
        frame(_messages.Welcome(version=9, agent="n", features=["steps"])),
        frame(_messages.Decision(step=1)),
        b"\x00" * 6,
    ],
    ids=["governs no engine", "another version", "no welcome", "no frame"],
)
def test_who_does_not_govern_is_left(agent: FakeAgent, saying: bytes) -> None:
    agent.sayings = [saying, frame(WELCOME)]
    steps = Steps(agent.path, "e", model="m")
    until(steps, lambda: steps.governed)
    assert len(agent.hellos) == 2 and steps.lost == 0
    steps.close()


def test_a_refusal_is_heard(agent: FakeAgent, caplog: pytest.LogCaptureFixture) -> None:
    refusal = _messages.Reply(problem=_messages.Reply().problem)
    refusal.problem.code, refusal.problem.message = "busy", "another scheduler governs"
    agent.sayings = [frame(refusal), frame(WELCOME)]
    steps = Steps(agent.path, "e", model="m")
    until(steps, lambda: steps.governed)
    assert "another scheduler governs" in caplog.text
    steps.close()


def test_decisions_that_are_not_taken(agent: FakeAgent) -> None:
    agent.answer = lambda step: frame(_messages.Decision(step=step.number)) * 200
    steps = Steps(agent.path, "e", model="m")
    until(steps, lambda: steps.governed)
    assert steps.send(step(1)) and steps.send(step(2))
    until(steps, lambda: steps.lost == 1)
    steps.close()


def test_one_that_only_tells_finds_a_lost_agent(agent: FakeAgent) -> None:
    def leave(_: Message) -> bytes:
        raise ConnectionAbortedError

    agent.answer = leave
    steps = Steps(agent.path, "e", model="m")
    until(steps, lambda: steps.governed)
    numbers = itertools.count(1)  # nothing is read before writing fails
    waiting.until("an agent that has gone is told no more", lambda: not steps.send(step(next(numbers))))
    assert steps.lost == 1
    steps.close()


DECISION = _messages.frame_type(_messages.Decision())


@pytest.mark.parametrize(("step", "steps"), [(0, 0), (1, 0), (127, 128), (1 << 40, 300), (1 << 62, 3)])
def test_a_decision_that_changes_nothing_is_read_without_a_message(step: int, steps: int) -> None:
    told = _messages.Decision(step=step, steps=steps, order_stays=True)
    read = _decisions.parse(DECISION, told.SerializeToString())
    assert isinstance(read, _decisions.Stays) or step == 0
    for name in ("step", "steps", "order_stays"):
        assert getattr(read, name) == getattr(told, name)
    for name in ("order", "pause", "resume", "preempt"):
        assert list(getattr(read, name)) == []


@pytest.mark.parametrize(
    "more",
    [
        {"order_stays": False},
        {"order_stays": False, "order": [1]},
        {"pause": [1]},
        {"resume": [0x70, 1]},
        {"preempt": [{"sequence": 1}]},
        {"evict": [1]},
        {"forgotten": [2]},
    ],
)
def test_a_decision_that_says_more_is_a_message(more: dict[str, object]) -> None:
    told = _messages.Decision(**{"step": 9, "steps": 1, "order_stays": True, **more})
    assert _decisions.parse(DECISION, told.SerializeToString()) == told


def test_bytes_that_are_no_decision_are_refused() -> None:
    for cut in (b"\x08", b"\x08\x80", b"\x08\x01\x70", b"\x08\x01\x70\x01\x80", b"\x08\x01\x70\x01\x68"):
        with pytest.raises(ValueError, match="Decision cannot be read"):
            _decisions.parse(DECISION, cut)
    assert _decisions.parse(999, b"\x08\x01\x70\x01") is None


def test_columns_are_written_where_they_change() -> None:
    columns = Columns()
    for number, sequences, tokens in [
        (1, [1, 2], [7, 8]),
        (2, [1, 2], [9, 10]),
        (3, [2], [9, 10]),
        (4, [], []),
        (5, [3], [11]),
    ]:
        columns.step.number = number
        columns.write("sequences", sequences)
        columns.write("tokens", tokens)
        assert columns.step == step(number, sequences=sequences, tokens=tokens)
    with pytest.raises(ValueError):
        columns.write("sequences", [5, -1])
    columns.write("sequences", [3])
    assert list(columns.step.sequences) == [3]
