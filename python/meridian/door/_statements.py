"""What makes a connection what it is: said once, and again whenever the agent comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from meridian.door import _messages
from meridian.door._messages import Message
from meridian.door._publication import Control, Publication, Rank


class Statement(Protocol):
    """A loan, or what is published."""

    def message(self, agent_pid: int) -> Message:
        """Return what to say to the agent that runs as this process."""

    @property
    def descriptor(self) -> int | None:
        """What goes along."""


@dataclass(frozen=True, slots=True)
class Published:
    """What the engine caches and how."""

    publication: Publication
    descriptor: None = None

    def message(self, agent_pid: int) -> Message:
        return self.publication.message()


def hello(engine: str, software: str, control: Control | None, rank: Rank | None) -> Message:
    """Return the first words of a connection: whose it is."""
    if (control is None) == (rank is None):
        raise ValueError("a Door is opened by an engine's control, or by one of its ranks")
    m = _messages.Hello(engine=engine, software=software)
    if control is not None:
        m.control.url, m.control.role, m.control.model = control.url, control.role, control.model
    if rank is not None:
        m.rank.index, m.rank.ranks = rank.index, rank.ranks
    return m
