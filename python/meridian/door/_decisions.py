"""Decisions that change nothing: most of them, and read without a message being made."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from meridian.door import _messages
from meridian.door._messages import Message

_DECISION: Final = _messages.frame_type(_messages.Decision())

_LONGEST: Final = 16
"""A Decision of more bytes says more, or counts steps beyond what an engine computes."""


class Stays:
    """A Decision with `step`, `steps` and `order_stays`, and nothing else in it."""

    DESCRIPTOR: ClassVar[Any] = _messages.Decision.DESCRIPTOR
    __slots__ = ("step", "steps")

    order_stays: ClassVar = True
    order: ClassVar[tuple[int, ...]] = ()
    pause: ClassVar[tuple[int, ...]] = ()
    resume: ClassVar[tuple[int, ...]] = ()
    preempt: ClassVar[tuple[Message, ...]] = ()

    def __init__(self, step: int, steps: int) -> None:
        self.step, self.steps = step, steps


def parse(frame_type: int, body: bytes) -> Message | Stays | None:
    """Read the message of a frame as `_messages.parse` does, and a Decision as `Stays` if it is one."""
    if frame_type == _DECISION and len(body) <= _LONGEST:
        match _varints(body):  # keys, which are the number of a field times eight, and values
            case [0x08, step, 0x70, 1]:
                return Stays(step, 0)
            case [0x08, step, 0x68, steps, 0x70, 1]:
                return Stays(step, steps)
    return _messages.parse(frame_type, body)


def _varints(data: bytes) -> list[int]:
    """Return the numbers that bytes are; none, where the last of them is cut off."""
    numbers: list[int] = []
    number = shift = 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            numbers.append(number)
            number = shift = 0
        else:
            shift += 7
    return numbers if shift == 0 else []
