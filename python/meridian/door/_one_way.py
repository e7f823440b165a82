"""What an engine's control tells its agent without an answer."""

from __future__ import annotations

from abc import ABC, abstractmethod

from meridian.door import _messages
from meridian.door._messages import Message


class OneWay(ABC):
    """The part of a door that never waits, so it is the same for threads and tasks."""

    @abstractmethod
    def _say(self, message: Message) -> None:
        """Send a message. Where it cannot be told, the agent does not need it."""

    @property
    @abstractmethod
    def features(self) -> frozenset[str]:
        """What both the client and the agent can do."""

    def progress(self, transfer: bytes, layers: int, tokens: int = 0) -> None:
        """Tell that the first so many layers of an offer are computed. This does not wait.

        Control tells it of all ranks, a rank of itself. With `tokens` it is so for the first so many tokens
        alone; an agent that would not see the difference is not told.
        """
        if tokens == 0 or "chunks" in self.features:
            self._say(_messages.Progress(transfer=transfer, layers=layers, tokens=tokens))
