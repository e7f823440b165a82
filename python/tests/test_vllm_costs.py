"""What a server learns of what prompts and loads cost it."""

from __future__ import annotations

import pytest

from meridian.vllm.costs import Costs


def step(costs: Costs, begun: float, ended: float, **computes: int) -> None:
    costs.scheduled(computes, begun)
    costs.computed(ended)


def test_a_token_costs_what_a_prompt_adds_to_a_step() -> None:
    costs = Costs()
    assert costs.saved(100) == 0.0, "nothing is known"
    step(costs, 0.0, 0.010, a=1, b=1)
    assert costs.saved(100) == 0.0, "a step of answers says nothing of prompts"
    step(costs, 1.0, 1.110, a=1, b=99)
    assert costs.saved(100) == pytest.approx(0.001)
    step(costs, 2.0, 3.0, a=1, b=31, c=1, d=1)
    step(costs, 4.0, 5.0, b=40, **{f"r{i}": 1 for i in range(60)})
    assert costs.saved(100) == pytest.approx(0.001), "steps of little prompt and much answer were believed"


def test_what_is_learned_follows() -> None:
    costs = Costs()
    step(costs, 0.0, 0.1, a=100)
    for i in range(40):
        step(costs, 1.0 + i, 1.2 + i, a=100)
    assert costs.saved(100) == pytest.approx(0.002, rel=0.01)


def test_steps_that_overlap_begin_when_the_one_before_ends() -> None:
    costs = Costs()
    costs.scheduled({"a": 64}, 0.0)
    costs.scheduled({"b": 64}, 0.01)
    costs.computed(0.064)
    assert costs.saved(64) == pytest.approx(0.001)
    costs.computed(0.128)
    assert costs.saved(64) == pytest.approx(0.001)


def test_steps_without_an_end_are_forgotten() -> None:
    costs = Costs()
    costs.scheduled({}, 0.0)  # nothing is computed: its end is not always told
    costs.computed(1.0)
    for i in range(1000):
        costs.scheduled({"a": 64}, float(i))
    costs.computed(1000.0)
    assert costs.saved(64) <= 4 / 64, "a step of long ago was believed"


def test_a_load_costs_the_same_for_any_number_of_tokens() -> None:
    costs = Costs()
    step(costs, 0.0, 0.1, a=100)
    costs.loaded(0.005)
    assert costs.saved(10) == pytest.approx(0.0005)
    assert costs.saved(100) == pytest.approx(0.00095)
    assert 0 < costs.saved(5) < 1e-8, "it is known, and nothing is saved"


def test_a_server_that_is_full_is_no_reason_to_compute() -> None:
    costs = Costs()
    step(costs, 0.0, 0.020, a=1)
    step(costs, 1.0, 1.120, a=100)
    for _ in range(100):
        costs.loaded(30.0)  # requests wait until others end
    assert costs.saved(100) == pytest.approx(0.001 - 0.050 / 100), "two steps and the pauses are the load's"
