"""How long one thought may be: the rule of Go's governor (decide/governor/thought.go), word for word.

testdata/governor/thoughts.jsonl holds both to the same verdicts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from meridian._estimators import EAT, RPDI

if TYPE_CHECKING:
    from meridian.config import MeridianConfig

# An engine that computes in 32 bits may end a hair below zero, and no vocabulary is as large as 2^64.
_LEAST: Final = -1e-4
_MOST: Final = 64 * math.log(2)


class Reason(Enum):
    """Why a thought is ended."""

    FREE = "free"
    CONVERGED = "converged"
    OVERTHINKING = "overthinking"
    HARD_CAP = "hard_cap"


@dataclass(frozen=True, slots=True)
class Terms:
    """By what thoughts are ended; the fields are those of [scheduler] and [entropy]."""

    max_think_tokens: int
    min_think_tokens: int = 0
    entropy: bool = False
    """entropy.enabled: whether entropies may end a thought, or its length alone."""
    ema_alpha: float = 0.05
    rpdi_threshold: float = 3.0
    eat_ema_variance_threshold: float = 1e-3

    @classmethod
    def of(cls, config: MeridianConfig) -> Terms:
        scheduler, entropy = config.scheduler, config.entropy
        return cls(
            max_think_tokens=scheduler.max_think_tokens,
            min_think_tokens=scheduler.min_think_tokens,
            entropy=entropy.enabled,
            ema_alpha=entropy.ema_alpha,
            rpdi_threshold=entropy.rpdi_threshold,
            eat_ema_variance_threshold=entropy.eat_ema_variance_threshold,
        )


class Thought:
    """One thought, from its first token until something ends it."""

    __slots__ = ("_eat", "_heard", "_rpdi", "_tokens", "terms")

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self._eat, self._rpdi = EAT(terms.ema_alpha), RPDI()
        self._heard = Reason.FREE
        self._tokens = 0

    def token(self, nats: float, boundary: bool) -> None:
        """Take the entropy of the next think token; a boundary ends a clause, a sentence or a line.

        A number that is no entropy counts as missing.
        """
        if not self.terms.entropy:
            return
        if not _LEAST <= nats <= _MOST:
            self.miss(1)
            return
        self._tokens += 1
        self._rpdi.add(max(nats, 0.0))
        if (
            boundary
            and self._tokens >= self.terms.min_think_tokens
            and self._rpdi.exceeds(self.terms.rpdi_threshold)
        ):
            self._hear(Reason.OVERTHINKING)

    def miss(self, tokens: int) -> None:
        """So many think tokens have no entropy: what they had decides nothing."""
        if tokens > 0 and self.terms.entropy:
            self._tokens += tokens
            self._rpdi.miss(tokens)

    def forked(self, nats: float) -> None:
        """Take the entropy after a forced end of the thought."""
        if not self.terms.entropy or not _LEAST <= nats <= _MOST:
            return
        self._eat.add(max(nats, 0.0))
        variance = self._eat.variance
        if (
            self._tokens >= self.terms.min_think_tokens
            and self._eat.warm
            and variance is not None
            and variance < self.terms.eat_ema_variance_threshold
        ):
            self._hear(Reason.CONVERGED)

    def _hear(self, reason: Reason) -> None:
        """Keep the first reason that an estimator gave."""
        if self._heard is Reason.FREE:
            self._heard = reason

    def verdict(self, think: int) -> Reason:
        """Say whether the thought ends after so many tokens, and why. The cap says least."""
        if self.terms.entropy and self._heard is not Reason.FREE:
            return self._heard
        return Reason.HARD_CAP if think >= self.terms.max_think_tokens else Reason.FREE
