"""Entropies of rows of logits where they are, and how they come to the host without waiting for them."""

from __future__ import annotations

from typing import Any, Final

import torch

ROWS_AT_ONCE: Final = 32
"""So many rows are computed at a time on a GPU: sixty megabytes of a large vocabulary."""

# What is so far below the largest logit adds nothing to a sum in 32 bits.
_LEAST: Final = -80.0


def entropies(logits: torch.Tensor, rows: list[int]) -> torch.Tensor:
    """Return the entropies of some rows in nats; of one that has none, what is no number."""
    if logits.device.type == "cpu":
        return torch.cat([_of(logits[row : row + 1]) for row in rows])  # a row stays in a core's cache
    if len(rows) == len(logits):
        return torch.cat([_of(part) for part in logits.split(ROWS_AT_ONCE)])
    at = torch.tensor(rows).to(logits.device, non_blocking=True)
    return torch.cat([_of(logits.index_select(0, part)) for part in at.split(ROWS_AT_ONCE)])


def _of(rows: torch.Tensor) -> torch.Tensor:
    below = rows - rows.amax(1, keepdim=True)
    below.clamp_(min=_LEAST)
    weights = below.exp()
    total = weights.sum(1)
    return total.log() - below.mul_(weights).sum(1) / total


class Copied:
    """Numbers of a device on their way to the host, one batch at a time."""

    def __init__(self, device: torch.device) -> None:
        self._event = torch.cuda.Event() if device.type == "cuda" else None
        self._batch: tuple[torch.Tensor, Any] | None = None

    def start(self, numbers: torch.Tensor, about: Any) -> None:
        """Copy behind what the stream has to do; what was not finished is forgotten."""
        if self._event is None:
            self._batch = numbers.cpu(), about
            return
        host = torch.empty(numbers.shape, dtype=numbers.dtype, device="cpu", pin_memory=True)
        host.copy_(numbers, non_blocking=True)
        self._event.record()
        self._batch = host, about

    def finish(self) -> tuple[list[Any], Any] | None:
        """Wait for the batch, which is then gone; None: none was started."""
        if self._batch is None:
            return None
        (host, about), self._batch = self._batch, None
        if self._event is not None:
            self._event.synchronize()
        return host.tolist(), about
