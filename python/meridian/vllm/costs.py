"""What computing prompts and loading prefixes cost this server, as its scheduler sees them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

_PROMPT: Final = 32
"""How many tokens of a request a step computes at least, to count as some of its prompt."""

_SHARE: Final = 0.75
"""How much of a step's tokens must be of prompts, to tell what these cost."""

_NEW: Final = 0.25
"""How much what is measured last counts."""

_DEEP: Final = 4
"""How many steps are under way at most; of more, the ends of some were not told."""

_PAUSES: Final = 0.01
"""What vLLM and the workers pause at most while a request loads and nothing is computed, in seconds."""

_LEAST: Final = 1e-9
"""What is told where nothing is saved, in seconds: 0 would mean that it is not known."""


class Costs:
    """Learns from steps and loads. Times are in seconds, of one clock."""

    def __init__(self) -> None:
        self._steps: deque[tuple[int, int, float]] = deque()
        """Steps under way: tokens of prompts, all tokens, when it was told."""
        self._ended = 0.0
        self._step = 0.0
        """What a step takes in which no prompts are computed."""
        self._token = 0.0
        self._load = 0.0

    def scheduled(self, computes: Mapping[str, int], now: float) -> None:
        """Hear what a step computes, by request."""
        if not computes:
            return
        if len(self._steps) == _DEEP:
            self._steps.clear()
        tokens = sum(computes.values())
        # Where there is no room for a prompt beside a token for each, no request is looked at.
        some = tokens - len(computes) >= _PROMPT - 1
        prompts = sum(n for n in computes.values() if n >= _PROMPT) if some else 0
        self._steps.append((prompts, tokens, now))

    def computed(self, now: float) -> None:
        """Hear that a step is over that computed something.

        Where vLLM schedules the next one before that, it began when the one before it ended.
        """
        if not self._steps:
            return
        prompts, tokens, begun = self._steps.popleft()
        took, self._ended = now - max(begun, self._ended), now
        if prompts == 0:
            self._step = _learned(self._step, took)
        elif prompts >= _SHARE * tokens:
            # The prompt's last token is computed in any case, in a step that takes its time.
            self._token = _learned(self._token, max(took - self._step, 0.0) / tokens)

    def loaded(self, delay: float) -> None:
        """Hear how much later a request went on than its prefix took to be found and to come.

        A load costs a step before it is asked for and one before it is seen, and pauses.
        What a request waits beyond that is for want of room, with a load or without.
        """
        self._load = _learned(self._load, min(max(delay, 0.0), 2 * self._step + _PAUSES))

    def saved(self, tokens: int) -> float:
        """Return what each of so many tokens saves that are loaded, but for their coming; 0: not known."""
        if self._token <= 0 or tokens < 1:
            return 0.0
        return max(self._token - self._load / tokens, _LEAST)


def _learned(known: float, new: float) -> float:
    return new if known == 0 else known + _NEW * (new - known)
