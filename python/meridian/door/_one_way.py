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

    def progress(self, transfer: bytes, layers: int) -> None:
        """Tell that the first so many layers of an offer are computed. This does not wait.

        Control tells it of all ranks, a rank of itself.
        """
        self._say(_messages.Progress(transfer=transfer, layers=layers))

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
