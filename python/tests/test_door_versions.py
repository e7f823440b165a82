"""Clients of this build, and agents that are older or newer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import TESTDATA
from engines import PREFILL, Engine, until
from fakeagent import SERVING, WELCOME, FakeAgent
from processes import PATIENCE, Agent

from meridian.door import (
    Control,
    Door,
    DoorError,
    Event,
    EventKind,
    Layer,
    Offer,
    Publication,
    _messages,
    agent_status,
)
from meridian.door._frames import frame
from meridian.door._messages import Message

OLD: dict[str, list[dict[str, Any]]] = json.loads((TESTDATA / "door/agents/old.json").read_text())["answers"]
TRANSFER = bytes([1, *bytes(14), 1])


def old_answer(message: Message) -> bytes:
    """Return what an agent from before there were features says to a message."""
    said = b""
    for answer in OLD[message.DESCRIPTOR.name.lower()]:
        body = bytes.fromhex(answer["hex"])
        if answer.get("reply"):
            body = _messages.Reply(request=message.request).SerializeToString() + body
        said += (len(body) + 2).to_bytes(4, "little") + answer["type"].to_bytes(2, "little") + body
    return said


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeAgent]:
    fake = FakeAgent(tmp_path / "door.sock")
    yield fake
    fake.close()


def test_an_agent_from_before_there_were_features(fake: FakeAgent) -> None:
    fake.sayings = [old_answer(_messages.Hello())] * 2
    fake.answer = old_answer
    events: list[Event] = []
    with Door(fake.path, "e", control=Control(role="both", model="m")) as door:
        door.publish(Publication("fp32", [Layer(1, 8)], 4, 16))
        door.wait_serving()
        assert door.features == frozenset()
        assert door.offer(Offer(TRANSFER, [1], [[0]], layers=1)).startswith(b"MRDT")
        door.progress(TRANSFER, 1)
        door.withdraw_offer(TRANSFER)
        freed = until(door, events, EventKind.SERVING, EventKind.FREED)[1]
        assert freed.transfer == TRANSFER and freed.problem is not None and freed.problem.code == "withdrawn"
    with pytest.raises(DoorError, match="does not tell its status") as refused:
        agent_status(fake.path)
    assert refused.value.code == "unsupported"


def test_what_a_newer_agent_tells_is_passed_over(fake: FakeAgent) -> None:
    unknown_frame = bytes.fromhex("040000004d00ffff")
    unknown_event = frame(
        _messages.Event(kinds=[99, 1], transfers=bytes(32), accepted=[False, False], problems=[{}, {}])
    )
    welcome = _messages.Welcome(version=1, agent="n", features=["status", "tomorrow", "refusals"])
    fake.sayings = [unknown_frame + frame(welcome) + unknown_frame + unknown_event]
    events: list[Event] = []
    with Door(fake.path, "e", control=Control()) as door:
        until(door, events, EventKind.SERVING)
        assert door.serving
        assert door.features == {"status", "refusals"}
    assert list(fake.hellos[0].features) == ["cache", "chunks", "refusals", "status", "steps", "store"]


def test_a_client_that_is_no_engine_asks_for_the_status(meridian_binary: Path, tmp_path: Path) -> None:
    agent = Agent(meridian_binary, tmp_path / "state", "n", "--no-directory")
    try:
        with Engine(agent.socket, "e", PREFILL) as engine:
            assert engine.control.features >= {"status", "refusals"}
            status = agent_status(agent.socket)
            assert (status.agent, status.connections, status.engines, status.serving) == ("n", 3, 1, 1)
            assert engine.control.serving
    finally:
        agent.stop()


@pytest.mark.parametrize(
    ("saying", "code"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "malformed"),
        (frame(_messages.Welcome(version=2)), "version"),
        (frame(SERVING), "malformed"),
        (frame(WELCOME), "unsupported"),
        (b"", "no_answer"),
    ],
    ids=["another protocol", "another version", "no welcome", "no feature", "nothing"],
)
def test_an_agent_that_does_not_tell_its_status(fake: FakeAgent, saying: bytes, code: str) -> None:
    fake.sayings = [saying]
    with pytest.raises(DoorError) as refused:
        agent_status(fake.path, timeout=0.2 if code == "no_answer" else PATIENCE)
    assert refused.value.code == code


def test_no_agent_to_ask_for_the_status(tmp_path: Path) -> None:
    with pytest.raises(DoorError) as refused:
        agent_status(tmp_path / "none")
    assert refused.value.code == "lost"
