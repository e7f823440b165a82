"""References to vLLM's blocks, beside vLLM forgetting all that it has computed."""

from __future__ import annotations

from kept_thoughts_world import Pool

from meridian.vllm.early_offers import Holds

ONE, OTHER = bytes(16), bytes([1] * 16)


def test_what_ends_while_vllm_forgets_is_given_up_once() -> None:
    pool = Pool()
    holds = Holds(pool)
    holds.hold(ONE, [1, 2])
    holds.hold(OTHER, [3])
    holds.let_go()
    assert holds.release(ONE) == 2, "the agent has ended it meanwhile"
    assert pool.references == {1: 0, 2: 0, 3: 0}
    holds.take_back()
    assert pool.references == {1: 0, 2: 0, 3: 1} and holds.count == 1
    assert holds.release(OTHER) == 1 and pool.pinned == []
