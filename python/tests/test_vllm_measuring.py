"""Entropies of a worker go to the governor by themselves, and its terms come back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakeagent import FakeAgent
from processes import PATIENCE
from waiting import until

from meridian._thought import Reason, Terms
from meridian.door import Steps, _messages
from meridian.door._frames import frame
from meridian.door._messages import Message
from meridian.vllm.measuring import _TOLD, Measuring

OWN = Terms(1000, 10, entropy=False, rpdi_threshold=2.0)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[FakeAgent]:
    fake = FakeAgent(tmp_path / "door.sock")
    yield fake
    fake.close()


def welcome(end_tokens: list[int]) -> bytes:
    told = _messages.Welcome(version=1, agent="n", incarnation=bytes(16), features=["steps"])
    told.governor.max_think_tokens, told.governor.min_think_tokens, told.governor.entropy = 50, 5, True
    told.governor.end_tokens.extend(end_tokens)
    return frame(told)


def test_numbered_requests_are_told(agent: FakeAgent) -> None:
    told: list[Message] = []
    agent.sayings = [welcome([9])]
    agent.answer = lambda step: told.append(step) or b""  # type: ignore[func-returns-value]
    steps = Steps(agent.path, "e", model="m", measures=True)
    measuring = Measuring(steps)
    end = time.monotonic() + PATIENCE
    while (terms := measuring.terms(OWN)) is None and time.monotonic() < end:
        measuring.tell([(1, 0, 0.5)])
    assert terms == Terms(50, 5, entropy=True, rpdi_threshold=2.0)
    assert measuring.terms(OWN) is None, "they are told once"
    measuring.tell([(7, 3, 1.5), (None, 0, 9.0), (8, 0, 0.25)])
    until("it is told", lambda: told and told[-1].sequences[0] == 7)
    step = told[-1]
    assert (list(step.sequences), list(step.counts), list(step.places)) == ([7, 8], [1, 1], [3, 0])
    assert list(step.entropies) == [1.5, 0.25] and not step.tokens
    assert agent.hellos[0].steps.measures
    measuring.tell([], [(7, Reason.HARD_CAP), (None, Reason.CONVERGED), (8, Reason.OVERTHINKING)])
    measuring.tell([(8, 1, 0.5)], [(9, Reason.CONVERGED)])
    until("it is told", lambda: told and list(told[-1].forced) == [9])
    assert [(list(step.forced), list(step.forced_for)) for step in told[-2:]] == [
        ([7, 8], [3, 2]),
        ([9], [1]),
    ]
    assert not told[-2].sequences and list(told[-1].entropies) == [0.5]
    names = _messages.Step.DESCRIPTOR.fields_by_name["forced_for"].enum_type.values_by_number
    assert all(names[_TOLD[reason]].name == f"FORCE_REASON_{reason.name}" for reason in _TOLD)
    steps.close()


def test_ranks_that_sample_the_same_keep_their_terms(agent: FakeAgent) -> None:
    agent.sayings = [welcome([9])]
    steps = Steps(agent.path, "e", model="m", measures=True)
    measuring = Measuring(steps, ranks=2)
    end = time.monotonic() + PATIENCE
    while not steps.governed and time.monotonic() < end:
        measuring.tell([])
    assert steps.governed and measuring.terms(OWN) is None
    steps.close()


def test_a_governor_that_does_not_know_the_model_sets_nothing(agent: FakeAgent) -> None:
    agent.sayings = [welcome([])]
    steps = Steps(agent.path, "e", model="m", measures=True)
    measuring = Measuring(steps)
    end = time.monotonic() + PATIENCE
    while not steps.governed and time.monotonic() < end:
        measuring.tell([])
    assert measuring.terms(OWN) is None
    steps.close()
