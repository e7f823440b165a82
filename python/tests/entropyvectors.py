"""Rows of testdata/probe, as numbers; its generator says what the fields mean."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

VECTORS = Path(__file__).parents[2] / "testdata" / "probe"
SAYS = {"nan": "NaN: token {token} of {count}", "infinite": "+Inf: token {token} of {count}"}
SAYS |= {"masked": "every logit is -Inf", "empty": "a row without logits"}


def load(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((VECTORS / name).read_text())
    return loaded


def logits(row: dict[str, Any]) -> list[float]:
    if "lcg" in row:
        return _lcg(**row["lcg"])
    data = bytes.fromhex(row["hex"])
    match row["dtype"]:
        case "fp32":
            return [x for (x,) in struct.iter_unpack("<f", data)]
        case "fp16":
            return [x for (x,) in struct.iter_unpack("<e", data)]
    return [struct.unpack("<f", b"\0\0" + data[i : i + 2])[0] for i in range(0, len(data), 2)]


def _lcg(
    seed: int, count: int, step: float, mask_every: int = 0, hot: tuple[int, float] | None = None
) -> list[float]:
    state, row = seed, []
    for i in range(count):
        state = (1664525 * state + 1013904223) % 2**32
        row.append(-math.inf if mask_every and i % mask_every == 0 else ((state >> 24) - 128) * step)
    if hot:
        row[hot[0]] = hot[1]
    return row


def says(row: dict[str, Any], count: int) -> str:
    """What a probe says of a row that has no entropy."""
    return SAYS[row["error"]].format(token=row.get("token"), count=count)
