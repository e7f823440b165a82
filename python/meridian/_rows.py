"""Entropies of rows of logits, in float64, with whatever holds the rows: torch on the
device where they are, NumPy, or plain Python. None of them is imported before a row of it comes."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

ROWS_AT_ONCE = 8
"""So many rows are widened to float64 at a time: ten megabytes of a large vocabulary."""

# What is so far below the largest logit adds nothing, and e to it is still a normal number.
_LEAST = -700.0


class RowError(ValueError):
    """A row of logits has no entropy."""


def library(logits: object) -> str:
    """Who made these logits: torch, numpy, or "" for plain sequences."""
    name = type(logits).__module__.partition(".")[0]
    return name if name in ("torch", "numpy") else ""


def stacked(rows: Sequence[Any]) -> Any:
    """The rows as one matrix; None where they are of different lengths, types or devices."""
    kind = library(rows[0])
    if not kind:
        return rows if all(not library(row) and len(row) == len(rows[0]) for row in rows) else None

    def form(row: Any) -> object:
        return library(row) and (row.shape, row.dtype, getattr(row, "device", None))

    return import_module(kind).stack(list(rows)) if len(set(map(form, rows))) == 1 else None


def entropies(rows: Any) -> list[float | RowError]:
    """The entropy in nats of every row of a matrix, or what is wrong with the row."""
    match library(rows):
        case "torch":
            if not rows.is_floating_point():
                raise TypeError(f"logits are floating-point numbers; got {rows.dtype}")
            return [h for part in rows.split(ROWS_AT_ONCE) for h in _by_torch(part)]
        case "numpy":
            if rows.dtype.kind != "f" and rows.dtype.name != "bfloat16":
                raise TypeError(f"logits are floating-point numbers; got {rows.dtype}")
            return [
                h for at in range(0, len(rows), ROWS_AT_ONCE) for h in _by_numpy(rows[at : at + ROWS_AT_ONCE])
            ]
    return [_by_hand(row) for row in rows]


def _by_torch(rows: Any) -> list[float | RowError]:
    if rows.shape[1] == 0:
        return [_trouble([]) for _ in range(len(rows))]
    torch = sys.modules["torch"]
    with torch.no_grad():
        x = rows.double()
        most = x.amax(1, keepdim=True)
        y = (x - most).clamp_(min=_LEAST)
        weights = y.exp()
        total = weights.sum(1)
        nats = (total.log() - (y * weights).sum(1) / total).tolist()
        return [h if math.isfinite(h) else _trouble(x[i].tolist()) for i, h in enumerate(nats)]


def _by_numpy(rows: Any) -> list[float | RowError]:
    if rows.shape[1] == 0:
        return [_trouble([]) for _ in range(len(rows))]
    numpy: Any = import_module("numpy")
    x = rows.astype(numpy.float64)
    with numpy.errstate(invalid="ignore"):
        y = numpy.maximum(x - x.max(axis=1, keepdims=True), _LEAST)
        weights = numpy.exp(y)
        total = weights.sum(axis=1)
        nats = (numpy.log(total) - (y * weights).sum(axis=1) / total).tolist()
    return [h if math.isfinite(h) else _trouble(x[i].tolist()) for i, h in enumerate(nats)]


def _by_hand(row: Sequence[float]) -> float | RowError:
    if not row or not math.isfinite(most := max(row)) or any(x != x for x in row):
        return _trouble(row)
    exponents = [max(x - most, _LEAST) for x in row]
    weights = [math.exp(y) for y in exponents]
    total = math.fsum(weights)
    return math.log(total) - math.fsum(y * w for y, w in zip(exponents, weights, strict=True)) / total


def _trouble(row: Sequence[float]) -> RowError:
    """What is wrong with a row that has no entropy, and where."""
    if not row:
        return RowError("a row without logits")
    for token, x in enumerate(row):
        if x != x:
            return RowError(f"a logit is NaN: token {token} of {len(row)}")
        if x == math.inf:
            return RowError(f"a logit is +Inf: token {token} of {len(row)}")
    return RowError("every logit is -Inf")
