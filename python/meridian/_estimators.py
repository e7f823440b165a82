"""EAT and RPDI of one thought, as published: what is not measured is absent."""

from __future__ import annotations

import math
from collections import deque
from decimal import Decimal

MIN_ALPHA = 0.001
"""The least weight of the newest value: with less, EAT would warm up for longer than anybody thinks."""

WINDOW = 512
"""Tokens that RPDI calls the last ones, as published."""


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
    """Mean entropy of the last tokens over that of all (arXiv:2603.14251). It needs every token's."""

    def __init__(self) -> None:
        self._last: deque[float] = deque(maxlen=WINDOW)
        self._local = 0.0
        self._global = 0.0
        self._tokens = 0
        self._broken = False

    def add(self, nats: float) -> None:
        if len(self._last) == WINDOW:
            self._local -= self._last[0]
        self._last.append(nats)
        self._local += nats
        self._global += nats
        self._tokens += 1
        if self._tokens % WINDOW == 0:
            self._local = math.fsum(self._last)  # what subtractions left behind goes away before it grows

    def miss(self) -> None:
        """A token's entropy is not known: neither mean is that of the chain any more."""
        self._broken = True

    def means(self) -> tuple[float, float] | None:
        if self._broken or self._tokens < WINDOW:
            return None
        return self._local / WINDOW, self._global / self._tokens
