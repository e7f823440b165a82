"""How far a step is, told when it is true.

On a GPU a layer's hook runs when its kernels are queued, not when they have run: who
would be told then could read what was in the blocks before.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final, Protocol

_WAITING: Final = 1024
"""How much may wait to be told. What is beyond is not told: when a request ends, all its layers are."""


class Mark(Protocol):
    """A point in the work of a GPU."""

    def synchronize(self) -> None:
        """Wait until the GPU has come there."""


class Progress:
    """Does things in order, each when the GPU has come to where it was then; a thread of its own waits."""

    def __init__(self, mark: Callable[[], Mark]) -> None:
        self._mark = mark
        self._waiting: queue.Queue[tuple[Mark, Callable[[], None]] | None] = queue.Queue(_WAITING)
        self._thread = threading.Thread(target=self._run, name="meridian-progress", daemon=True)
        self._thread.start()

    def then(self, do: Callable[[], None]) -> None:
        """Do something when all that the GPU has been given so far is done. This does not wait."""
        if not self._waiting.full():
            self._waiting.put_nowait((self._mark(), do))

    def _run(self) -> None:
        while (told := self._waiting.get()) is not None:
            mark, do = told
            mark.synchronize()
            do()

    def close(self, timeout: float) -> None:
        """End the thread, unless a GPU that hangs keeps it."""
        try:
            self._waiting.put(None, timeout=timeout)
        except queue.Full:
            return
        self._thread.join(timeout)
