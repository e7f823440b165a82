"""What an engine's control tells its agent without an answer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from meridian.door import _messages
from meridian.door._messages import Message


class OneWay(ABC):
    """The part of a door that never waits, so it is the same for threads and tasks."""

    @abstractmethod
    def _say(self, message: Message) -> None:
        """Send a message. Where it cannot be told, nobody misses it."""

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

    def step(
        self,
        number: int,
        *,
        requests: bytes = b"",
        committed: Iterable[int] = (),
        computed_layers: Iterable[int] = (),
        running: int = 0,
        waiting: int = 0,
        free_blocks: int = 0,
    ) -> None:
        """Tell what one step did, in columns: `requests` has 16 bytes for each. This does not wait."""
        self._say(
            _messages.Step(
                number=number,
                requests=requests,
                committed=committed,
                computed_layers=computed_layers,
                running=running,
                waiting=waiting,
                free_blocks=free_blocks,
            )
        )
