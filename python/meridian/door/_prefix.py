"""What an engine keeps for every engine of its cell, and finds of theirs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from meridian.door import _messages
from meridian.door._events import DoorError
from meridian.door._handoff import fill
from meridian.door._messages import Message
from meridian.door._publication import Scope

FEATURE: Final = "cache"
MAX_TOKENS: Final = 256 << 10
"""How many tokens one Keep or Find has at most."""
_LONGEST_US: Final = (1 << 32) - 1
_LONGEST_NS: Final = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class CacheTerms:
    """What an engine goes by that keeps and finds prefixes."""

    block_tokens: int
    """How many tokens a piece of a prefix has; what is shorter is not kept."""
    find_wait: float
    """How long a scheduler may stand still for an answer, in seconds."""


@dataclass(frozen=True, slots=True)
class Keep:
    """The cache of these tokens may be kept. The blocks are not the engine's until the event FREED."""

    transfer: bytes
    """16 bytes; a new one for every Keep."""
    tokens: Iterable[int]
    """All layers of them are computed."""
    tables: Sequence[Iterable[int]]
    """One block table for each group of layers, or one for all."""
    scope: Scope = field(default_factory=Scope)
    """What is not the publication's."""
    dp: int = 0
    request_id: str = ""
    """What the request is called, for people who ask what became of it; 128 bytes of it count."""
    leg: bytes = b""
    """What a gateway made, if there is one: it says whose share of the cell's memory this takes."""

    def message(self) -> Message:
        """Return it as the door has it."""
        m = _messages.Keep(
            transfer=self.transfer, tokens=self.tokens, dp=self.dp, request_id=self.request_id, leg=self.leg
        )
        fill(m, self.tables, self.scope)
        return m


@dataclass(frozen=True, slots=True)
class Find:
    """Which prefix of these tokens has the cell?"""

    tokens: Iterable[int]
    present_tokens: int = 0
    """Tokens that the engine has already."""
    scope: Scope = field(default_factory=Scope)
    within: float = 0.0
    """How long to look at most, in seconds; 0: the agent's default."""
    request_id: str = ""
    """What the request is called, as Keep has it."""
    token_time: float = 0.0
    """What computing one more of these tokens takes the engine, in seconds; 0: not known.

    Where a fetch is thought to take longer, the answer is to compute.
    """
    leg: bytes = b""
    """As Keep has it."""

    def message(self) -> Message:
        """Return it as the door has it."""
        within_us = min(max(1, int(self.within * 1e6)), _LONGEST_US) if self.within > 0 else 0
        m = _messages.Find(
            tokens=self.tokens,
            present_tokens=self.present_tokens,
            deadline_us=within_us,
            token_ns=min(max(1, int(self.token_time * 1e9)), _LONGEST_NS) if self.token_time > 0 else 0,
            request_id=self.request_id,
            leg=self.leg,
        )
        fill(m, (), self.scope)
        return m


@dataclass(frozen=True, slots=True)
class Found:
    """What the cell has."""

    tokens: int = 0
    """How many there are from the first on; 0: compute them."""
    ticket: bytes = b""
    """For an Accept of just so many tokens, or to be declined."""
    reason: str = ""
    """Why there are none, or not more."""


def found(reply: Message) -> Found:
    """Read the answer to a Find."""
    return Found(reply.found.tokens, reply.found.ticket, reply.found.reason)


def terms_of(welcome: Message) -> CacheTerms:
    """Read the terms of an agent that keeps prefixes."""
    return CacheTerms(welcome.cache.block_tokens, welcome.cache.find_wait_us / 1e6)


def must_keep_prefixes(features: frozenset[str]) -> None:
    """Refuse to ask an agent that keeps no prefixes, or is older than that."""
    if FEATURE not in features:
        raise DoorError("unsupported", "the agent keeps no prefixes", "turn store.enabled on where it runs")
