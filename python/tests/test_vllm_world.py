"""The connector's two halves against chance."""

from __future__ import annotations

from collections import Counter

import pytest
from vllmworld import CUT, WINDOWED, World

from meridian.vllm.cut import Cut


@pytest.mark.parametrize("cut", [CUT, WINDOWED], ids=["whole", "windowed"])
@pytest.mark.parametrize("workers", [1, 2])
def test_nothing_is_reported_twice_lost_or_freed_too_early(workers: int, cut: Cut) -> None:
    seen: Counter[str] = Counter()
    for seed in range(150):
        world = World(seed, workers, cut)
        try:
            world.run(60)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        seen.update(world.outcomes)
    if cut is WINDOWED:  # the cell keeps nothing of such a model
        assert seen.pop("found") == seen.pop("kept") == 0
        assert seen.pop("chunked") == seen.pop("lost") == 0, "its blocks are given up while it is computed"
    assert min(seen.values()) > 100, f"too little happened: {seen}"
