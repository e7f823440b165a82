"""What an engine asks of its agent for one request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from meridian.door import _messages
from meridian.door._messages import Message
from meridian.door._publication import Scope


@dataclass(frozen=True, slots=True)
class Offer:
    """A request's cache may be taken. The blocks are not the engine's until the event FREED."""

    transfer: bytes
    """The request's id, 16 bytes; a new one for every offer."""
    tokens: Iterable[int]
    tables: Sequence[Iterable[int]]
    """One block table for each group of layers, or one for all."""
    layers: int
    """Computed by now; `Door.progress` tells of more."""
    scope: Scope = field(default_factory=Scope)
    """What is not the publication's."""
    dp: int = 0
    """The attention-DP group that serves the request."""
    keep: float = 0.0
    """How long the offer stands if it is not taken, in seconds; 0: the agent's default."""
    leg: bytes = b""
    """What a gateway made, if there is one."""
    computed_tokens: int = 0
    """Of them, from the first on, all layers are computed by now."""

    def message(self) -> Message:
        """Return the offer as the door has it."""
        m = _messages.Offer(
            transfer=self.transfer,
            tokens=self.tokens,
            dp=self.dp,
            layers=self.layers,
            computed_tokens=self.computed_tokens,
            keep_ms=_milliseconds(self.keep),
            leg=self.leg,
        )
        fill(m, self.tables, self.scope)
        return m


@dataclass(frozen=True, slots=True)
class Accept:
    """The cache of a ticket is wanted. The blocks are not the engine's until the event READY, or FREED."""

    ticket: bytes
    tokens: Iterable[int]
    tables: Sequence[Iterable[int]]
    scope: Scope = field(default_factory=Scope)
    dp: int = 0
    present_tokens: int = 0
    """Tokens that the engine has already."""
    push: bool = False
    """The source writes, instead of being read from."""
    deadline: float = 0.0
    """Of the whole hand-off, in seconds; 0: the agent's default."""
    leg: bytes = b""

    def message(self) -> Message:
        """Return the accept as the door has it."""
        m = _messages.Accept(
            ticket=self.ticket,
            tokens=self.tokens,
            dp=self.dp,
            present_tokens=self.present_tokens,
            push=self.push,
            deadline_ms=_milliseconds(self.deadline),
            leg=self.leg,
        )
        fill(m, self.tables, self.scope)
        return m


def fill(message: Message, tables: Sequence[Iterable[int]], scope: Scope) -> None:
    """Write block tables and a scope into a message that has them."""
    for blocks in tables:
        message.tables.add(blocks=blocks)
    if scope != Scope():
        scope.fill(message.scope)


_LONGEST: Final = 4_294_967.0
"""The longest time that a message can have, in seconds: 49 days."""


def _milliseconds(seconds: float) -> int:
    """Return a time as messages have it: at least one, unless there is none."""
    return max(1, int(min(seconds, _LONGEST) * 1000)) if seconds > 0 else 0
