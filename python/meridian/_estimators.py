"""EAT and RPDI of one thought, as published: what is not measured is absent."""

from __future__ import annotations

import math
from collections import deque
from decimal import Decimal

MIN_ALPHA = 0.001
"""The least weight of the newest value: with less, EAT would warm up for longer than any thought lasts."""

WINDOW = 512
"""Tokens that RPDI calls the last ones, as published."""

MOST_MISSED = 24 * math.log(2)
"""The most that a token whose entropy is not known can have: no vocabulary has 2**24 tokens."""


class EAT:
    """Moving mean and variance of the entropy after a forced end of the thought (arXiv:2509.26522)."""

    def __init__(self, alpha: float) -> None:
        self._alpha = alpha
        self._warm_up = math.ceil(4 / Decimal(str(max(alpha, MIN_ALPHA))))
        self._values = 0
        self.last: float | None = None
        self.mean: float | None = None
        self.variance: float | None = None

    def add(self, nats: float) -> None:
        if self.mean is None or self.variance is None:
            self.mean, self.variance = nats, 0.0
        else:
            self.mean = self._alpha * nats + (1 - self._alpha) * self.mean
            self.variance = self._alpha * (nats - self.mean) ** 2 + (1 - self._alpha) * self.variance
        self.last = nats
        self._values += 1

    @property
    def warm(self) -> bool:
        """Whether the variance may be believed: 4/alpha values came before the last one."""
        return self._values > self._warm_up


class RPDI:
    """Mean entropy of the last tokens over that of all (arXiv:2603.14251).

    The index needs every token's entropy; that it exceeds a threshold is certain without some of them.
    """

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=WINDOW)
        self._local = 0.0
        self._global = 0.0
        self._tokens = 0
        self._missed = 0

    def add(self, nats: float) -> None:
        self._push(nats)
        self._global += nats

    def _push(self, nats: float) -> None:
        if len(self._last) == WINDOW:
            self._local -= self._last[0]
        self._last.append(nats)
        self._local += nats
        self._tokens += 1
        if self._tokens % WINDOW == 0:
            self._local = math.fsum(self._last)  # what subtractions left behind goes away before it grows

    def miss(self, tokens: int) -> None:
        """So many tokens have no entropy: neither mean is that of the chain any more."""
        for _ in range(min(tokens, WINDOW)):
            self._push(0.0)
        self._tokens += max(0, tokens - WINDOW)
        self._missed += tokens

    def exceeds(self, threshold: float) -> bool:
        """Whether the index is more than a threshold, whatever the missing tokens had.

        Among the last ones they count as certain, and among all as undecided as can be.
        """
        most = self._global + self._missed * MOST_MISSED
        return (
            self._tokens >= WINDOW and most > 0 and self._local / WINDOW / (most / self._tokens) > threshold
        )

    def means(self) -> tuple[float, float] | None:
        if self._missed or self._tokens < WINDOW:
            return None
        return self._local / WINDOW, self._global / self._tokens
