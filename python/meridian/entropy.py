"""How undecided a model is: the entropy of its logits, and what EAT and RPDI make of it.

A probe tells; it ends no thought. What was not measured is None, never a guess.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from meridian import _rows
from meridian._estimators import EAT, MIN_ALPHA, RPDI
from meridian._rows import RowError

__all__ = ["EntropyProbe", "EntropySignal", "KernelError", "RowError"]

BACKENDS = ("cpu", "cuda")

MAX_REQUESTS = 65_536
"""Requests that a probe knows at a time, four kilobytes each."""

KERNEL_FAILURES = 3
"""After so many in a row, a probe stays on the CPU."""


class KernelError(RuntimeError):
    """The GPU could not compute, and the CPU could not read its logits either."""


@dataclass(frozen=True, slots=True)
class EntropySignal:
    """What is known of a request after a row of its logits. Entropies are in nats."""

    req_id: Hashable
    token_entropy: float | None
    """Of the newest token's distribution; None where it had none, and `problem` says why."""
    eat: float | None
    """Of the last fork: the entropy after a forced end of the thought. None where there was no fork."""
    eat_ema: float | None
    eat_ema_variance: float | None
    """In nats², as `entropy.eat_ema_variance_threshold` is."""
    eat_warm: bool
    """Whether the variance may be held against the threshold: 4/alpha forks came before the last."""
    rpdi: float | None
    """`rpdi_local` over `rpdi_global`; None before 512 tokens, and for good once a token is missing."""
    rpdi_local: float | None
    rpdi_global: float | None
    problem: str = ""
    """Why this row has no entropy."""


class _Thought:
    """What is known of one request."""

    def __init__(self, alpha: float) -> None:
        self.eat, self.rpdi = EAT(alpha), RPDI()
        self.newest: float | None = None


class EntropyProbe:
    """Entropies of the logits of requests, and what follows of them, request by request.

    Rows may be NumPy arrays, torch tensors or sequences of numbers; neither library is
    imported before one of its rows comes. With the backend "cuda", tensors are computed on the
    device where they are, and on the CPU where that fails, which is counted. Not thread-safe.
    """

    def __init__(
        self,
        think_end_token_ids: Iterable[int | Sequence[int]],
        backend: str = "cpu",
        ema_alpha: float = 0.05,
    ) -> None:
        if backend not in BACKENDS:
            raise ValueError(f"backend must be one of {', '.join(BACKENDS)}; got {backend!r}")
        if not MIN_ALPHA <= ema_alpha <= 1:
            raise ValueError(f"entropy.ema_alpha must be in [{MIN_ALPHA}, 1]; got {ema_alpha}")
        self.backend = backend
        self.alone = 0
        """Rows of batches that were computed one by one: vocabularies, types or devices were mixed."""
        self.kernel_fallbacks = 0
        """Rows that the GPU could not compute, and the CPU did."""
        self.last_kernel_error: BaseException | None = None
        self._failures = 0
        self._alpha = ema_alpha
        self._ends = [(end,) if isinstance(end, int) else tuple(end) for end in think_end_token_ids]
        if not all(self._ends):
            raise ValueError("think_end_token_ids has an end of a thought without any token")
        self._thoughts: dict[Hashable, _Thought] = {}

    def compute(self, req_id: Hashable, logits: Any, *, appended: Sequence[int] = ()) -> EntropySignal:
        """Take the logits of the next think token of a request.

        With `appended`, they are those of a fork: of the request's context and these tokens, which
        hold the end of a thought. They feed EAT and are no token of the request. RowError means that the
        row has no entropy: of a token it leaves a gap, of a fork nothing.
        """
        self._check_fork(appended)
        thought = self._thought(req_id)
        (nats,) = self._entropies(logits[None] if _rows.library(logits) else [logits])
        if isinstance(nats, RowError):
            self._take(thought, None, fork=bool(appended))
            raise nats
        self._take(thought, nats, fork=bool(appended))
        return self._signal(req_id)

    def compute_batch(self, req_ids: Sequence[Hashable], logits_batch: Any) -> list[EntropySignal]:
        """Take the logits of the next think token of several requests: a matrix, or a sequence of rows.

        Rows of different vocabularies are computed one by one, and counted in `alone`. A row without
        an entropy has a signal that says why in `problem`; it does not keep the others from theirs.
        """
        if len(req_ids) != len(logits_batch):
            raise ValueError(f"{len(req_ids)} requests, but {len(logits_batch)} rows of logits")
        if len(set(req_ids)) != len(req_ids):
            raise ValueError("a request is named twice")
        thoughts = [self._thought(req_id) for req_id in req_ids]
        signals = []
        for req_id, thought, nats in zip(req_ids, thoughts, self._batch(logits_batch), strict=True):
            problem = str(nats) if isinstance(nats, RowError) else ""
            self._take(thought, None if isinstance(nats, RowError) else nats, fork=False)
            signals.append(self._signal(req_id, problem))
        return signals

    def miss(self, req_id: Hashable) -> EntropySignal:
        """A think token was committed, and its logits are lost: from here on the request has no RPDI."""
        self._take(self._thought(req_id), None, fork=False)
        return self._signal(req_id)

    def forget(self, req_id: Hashable) -> None:
        """A request has ended, or was never there."""
        self._thoughts.pop(req_id, None)

    def _check_fork(self, appended: Sequence[int]) -> None:
        held = any(
            tuple(appended[at : at + len(end)]) == end for end in self._ends for at in range(len(appended))
        )
        if appended and not held:
            raise ValueError(
                f"appended tokens {list(appended)[:16]} hold no end of a thought: "
                "entropy after anything else is no EAT; append one of think_end_token_ids"
            )

    def _thought(self, req_id: Hashable) -> _Thought:
        thought = self._thoughts.get(req_id)
        if thought is None:
            if len(self._thoughts) >= MAX_REQUESTS:
                raise RuntimeError(
                    f"a probe knows {MAX_REQUESTS} requests at most: forget() those that ended"
                )
            thought = self._thoughts[req_id] = _Thought(self._alpha)
        return thought

    def _batch(self, rows: Any) -> list[float | RowError]:
        if not len(rows):
            return []
        if _rows.library(rows):
            return self._entropies(rows)
        if (matrix := _rows.stacked(rows)) is not None:
            return self._entropies(matrix)
        self.alone += len(rows)
        return [nats for row in rows for nats in self._entropies(row[None] if _rows.library(row) else [row])]

    def _entropies(self, rows: Any) -> list[float | RowError]:
        if _rows.library(rows) and rows.ndim != 2:
            raise ValueError(f"a row of logits has one dimension; got {rows.ndim - 1}")
        if _rows.library(rows) != "torch" or rows.device.type == "cpu":
            return _rows.entropies(rows)
        if self.backend == "cuda" and self._failures < KERNEL_FAILURES:
            try:
                nats = _rows.entropies(rows)
                self._failures = 0
                return nats
            except RuntimeError as failure:  # out of memory, a kernel that cannot run, a device that is gone
                self._failures += 1
                self.last_kernel_error = failure
        if self.backend == "cuda":
            self.kernel_fallbacks += len(rows)
        try:
            return _rows.entropies(rows.cpu())
        except RuntimeError as failure:
            raise KernelError(
                f"logits on {rows.device} can neither be computed there nor read: {failure}"
            ) from failure

    @staticmethod
    def _take(thought: _Thought, nats: float | None, *, fork: bool) -> None:
        if fork:
            if nats is not None:
                thought.eat.add(nats)
            return
        thought.newest = nats
        if nats is None:
            thought.rpdi.miss(1)
        else:
            thought.rpdi.add(nats)

    def _signal(self, req_id: Hashable, problem: str = "") -> EntropySignal:
        thought = self._thoughts[req_id]
        local, everywhere = thought.rpdi.means() or (None, None)
        return EntropySignal(
            req_id,
            thought.newest,
            thought.eat.last,
            thought.eat.mean,
            thought.eat.variance,
            thought.eat.warm,
            local / everywhere if local is not None and everywhere else None,
            local,
            everywhere,
            problem,
        )
