"""A Step that is written again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from meridian.door import _messages


class Columns:
    """A Step whose columns stay as they are until they are to be others.

    Of requests that decode most columns are the same step by step, and to fill one costs more than all
    else about it: some 35 ns a number.
    """

    def __init__(self) -> None:
        self.step: Final = _messages.Step()
        """Send it, and write the next one over it."""
        self._written: Final[dict[str, Sequence[float]]] = {}

    def write(self, name: str, values: Sequence[float]) -> None:
        """Let a column have these values; their list must not change any more."""
        if self._written.get(name) == values:
            return
        self._written.pop(name, None)
        column = getattr(self.step, name)
        del column[:]
        column.extend(values)
        self._written[name] = values
