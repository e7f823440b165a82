"""Frames of the engine door, and agents that do not keep to them."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fakeagent import SERVING, WELCOME, FakeAgent
from google.protobuf import descriptor_pool
from processes import PATIENCE

from meridian.door import Accept, Control, Door, DoorError, Event, EventKind, Offer, _messages
from meridian.door._frames import MAX_FRAME_BYTES, BadFrame, Deframer, frame


def test_frames_come_back_from_any_cut() -> None:
    messages = [WELCOME, SERVING, _messages.Reply(request=1 << 40, ticket=b"t" * 1000), _messages.Step()]
    stream = b"".join(map(frame, messages))
    for cut in range(len(stream) + 1):
        deframer, got = Deframer(), []
        for part in (stream[:cut], stream[cut:]):
            deframer.feed(part)
            while (message := deframer.next()) is not None:
                got.append(message)
        assert got == messages


def test_the_bytes_of_a_frame() -> None:
    assert frame(_messages.Progress(layers=3)).hex() == "040000000700" + "1003"


@pytest.mark.parametrize(
    "wrong",
    ["000000000000", "010000000100", "010000010500", "ffffffff0100", "040000000500ffff"],
    ids=["empty", "half a type", "over the cap", "over all caps", "no message"],
)
def test_what_is_no_frame(wrong: str) -> None:
    deframer = Deframer()
    deframer.feed(bytes.fromhex(wrong))
    with pytest.raises(BadFrame):
        deframer.next()


def test_a_frame_that_would_be_too_long() -> None:
    with pytest.raises(BadFrame, match="at most"):
        frame(_messages.Progress(transfer=bytes(MAX_FRAME_BYTES)))


@pytest.mark.parametrize(
    ("seconds", "ms"),
    [(-1.0, 0), (0.0, 0), (1e-9, 1), (0.25, 250), (1e30, 4_294_967_000), (math.inf, 4_294_967_000)],
)
def test_times_fit_a_message(seconds: float, ms: int) -> None:
    assert Offer(bytes(16), [1], [[0]], layers=1, keep=seconds).message().keep_ms == ms
    assert Accept(b"t", [1], [[0]], deadline=seconds).message().deadline_ms == ms


def test_messages_have_a_pool_of_their_own() -> None:
    with pytest.raises(KeyError):
        descriptor_pool.Default().FindMessageTypeByName(f"{_messages.PACKAGE}.Hello")


def test_kinds_of_events_are_those_of_the_schema() -> None:
    kinds = _messages.Event.DESCRIPTOR.fields_by_name["kinds"].enum_type.values_by_name
    named = {name.removeprefix("EVENT_KIND_"): value.number for name, value in kinds.items()}
    assert {kind.name: kind.value for kind in EventKind} | {"UNSPECIFIED": 0} == named


@pytest.mark.parametrize("runtime", ["upb", "python"])
def test_either_runtime_of_protobuf(runtime: str) -> None:
    program = """if True:
        from google.protobuf.internal import api_implementation
        from meridian.door import _messages
        from meridian.door._frames import Deframer, frame
        from meridian.door import Accept, Offer
        from meridian.door import Layer, Publication, Scope
        deframer = Deframer()
        for message in (
            Offer(bytes(16), range(300), [[1, 2], [3]], layers=2, scope=Scope(salt="s")).message(),
            Accept(b"t", [1, 1 << 31], [[7]], push=True, deadline=2).message(),
            Publication("bf16", [Layer(8, 128)] * 2, 16, 64, tp=8, stages=[1, 1]).message(),
            _messages.Step(number=3, sequences=[1, 2], counts=[1, 0], tokens=[7], entropies=[0.5]),
        ):
            deframer.feed(frame(message))
            assert deframer.next() == message
        offer = Offer(bytes(16), [5], [[6]], layers=1, keep=0.0001)
        print(api_implementation.Type(), frame(offer.message()).hex())
    """
    environment = os.environ | {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": runtime}
    run = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert (
        run.stdout
        == f"{runtime} 20000000" + "0500" + "1210" + "00" * 16 + "220105" + "2a030a0106" + "38014001\n"
    )


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeAgent]:
    fake = FakeAgent(tmp_path / "door.sock")
    yield fake
    fake.close()


def version_2() -> bytes:
    return frame(_messages.Welcome(version=2))


def refusal() -> bytes:
    reply = _messages.Reply()
    reply.problem.code, reply.problem.message, reply.problem.hint = "denied", "not you", "ask"
    return frame(reply)


@pytest.mark.parametrize(
    ("saying", "code"),
    [
        (lambda: b"GET / HTTP/1.1\r\n\r\n", "malformed"),
        (lambda: frame(_messages.Reply(request=1)), "malformed"),
        (version_2, "version"),
        (refusal, "denied"),
    ],
    ids=["another protocol", "no welcome", "another version", "a refusal"],
)
def test_an_agent_that_is_none(fake: FakeAgent, saying: Callable[[], bytes], code: str) -> None:
    fake.sayings = [saying()]
    with pytest.raises(DoorError) as failed:
        Door(fake.path, "e", control=Control()).open()
    assert failed.value.code == code


@pytest.mark.parametrize(
    "nonsense",
    [
        lambda: frame(_messages.Step()),
        lambda: frame(WELCOME),
        lambda: frame(_messages.Event(kinds=[1, 2], transfers=bytes(16))),
    ],
    ids=["an engine's frame", "a second welcome", "columns of different lengths"],
)
def test_an_agent_that_loses_its_mind(fake: FakeAgent, nonsense: Callable[[], bytes]) -> None:
    fake.sayings = [frame(WELCOME) + frame(SERVING) + nonsense(), frame(WELCOME) + frame(SERVING)]
    with Door(fake.path, "e", control=Control(role="decode")) as door:
        told: list[Event] = []
        while len(told) < 3:
            told += door.poll_events(PATIENCE)
        assert [event.kind for event in told] == [EventKind.SERVING, EventKind.FENCED, EventKind.SERVING]
    assert [hello.engine for hello in fake.hellos] == ["e", "e"]
    assert {hello.control.role for hello in fake.hellos} == {"decode"}
    assert [event.kind for event in door.poll_events()] == [EventKind.FENCED]
