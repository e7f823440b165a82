"""What a governed scheduler tells of its steps, beside a plain account of the same."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from meridian.door import Terms, _messages
from meridian.vllm.governing import SILENCE_NS, Governing


class Governor:
    """One that hears, and decides what a test says."""

    def __init__(self) -> None:
        self.terms = Terms("test", 0.0, 100, 0, (), False)
        self.connections = 1
        self.governed = True
        self.told: list[Any] = []
        self.decisions: list[Any] = []

    def take(self, wait: float = 0.0) -> list[Any]:
        taken, self.decisions = self.decisions, []
        return taken

    def send(self, step: Any) -> bool:
        told = _messages.Step()
        told.CopyFrom(step)  # its owner writes the next one over it
        self.told.append(told)
        return True


def a_request(number: int) -> SimpleNamespace:
    return SimpleNamespace(
        request_id=f"r{number}",
        prompt_token_ids=[1, 2, 3],
        num_prompt_tokens=3,
        output_token_ids=[],
        sampling_params=None,
        cache_salt=None,
        num_computed_tokens=0,
        num_output_placeholders=0,
    )


def columns(step: Any) -> tuple[list[int], ...]:
    return tuple(map(list, (step.computed, step.counts, step.tokens, step.block_counts, step.blocks)))


def test_steps_tell_what_a_plain_account_has() -> None:
    chance = random.Random(7)
    governor = Governor()
    connections = governor.connections
    governing = Governing(governor)  # type: ignore[arg-type]
    here: dict[int, SimpleNamespace] = {}
    account: dict[int, int] = {}  # tokens of each whose KV was told
    for _ in range(2000):
        finished, stopped, begun = [], [], []
        if chance.random() < 0.05 and len(here) < 8:
            request = a_request(governing._last_sequence + 1)
            number = governing.begun(request)
            here[number], account[number] = request, 0
            begun.append(number)
        scheduled, found = {}, {}
        for number, request in list(here.items()):
            if chance.random() < 0.02:
                request.num_computed_tokens = request.num_output_placeholders = account[number] = 0
                governing.stopped(request)
                stopped += [number] if number not in begun else []
            if chance.random() < 0.03:
                continue  # it has no turn
            request.num_computed_tokens += chance.choice((1, 1, 1, 4))
            request.num_output_placeholders = chance.choice((0, 0, 0, 1))
            scheduled[request.request_id] = 1
            if chance.random() < 0.98:
                found[request.request_id] = [
                    chance.randrange(100_000) for _ in range(chance.choice((1, 1, 2)))
                ]
                request.output_token_ids += found[request.request_id]
            if chance.random() < 0.02:  # tokens that were a guess
                request.num_computed_tokens = max(0, request.num_computed_tokens - 3)
            if chance.random() < 0.01:
                governing.finished(request)
                del here[number], account[number]
                finished += [number] if number not in begun else []
        if chance.random() < 0.01:  # another governor, which knows nothing
            governor.connections += 1
            finished, stopped, begun = [], [], list(here)
            account = dict.fromkeys(here, 0)
        begun = [number for number in begun if number in here]
        # A step that is planned ahead gives blocks to requests that this one does not compute.
        got = {r.request_id: [chance.randrange(99)] for r in here.values() if chance.random() < 0.1}
        governing.planned(got.items())
        governing.computed(scheduled, found, running=len(here), waiting=0, free_blocks=9)
        told = governor.told[-1]
        if governor.connections != connections:
            connections, got = governor.connections, {}  # what was given before it came is not told
        concerned = {number for number, request in here.items() if request.request_id in scheduled | got}
        assert concerned == set(told.sequences) and len(concerned) == len(told.sequences)
        rows = [(number, here[number]) for number in told.sequences]
        computed = []
        for number, request in rows:
            total = request.num_computed_tokens - request.num_output_placeholders
            computed.append(max(0, total - account[number]))
            account[number] = total
        new = [found.get(request.request_id, []) for _, request in rows]
        given = [got.get(request.request_id, []) for _, request in rows] if got else []
        assert columns(told) == (
            computed,
            list(map(len, new)),
            [token for tokens in new for token in tokens],
            list(map(len, given)),
            [block for blocks in given for block in blocks],
        )
        assert [b.sequence for b in told.begun] == begun
        assert (list(told.finished), [s.sequence for s in told.stopped]) == (finished, stopped)
        assert (told.running, told.waiting, told.free_blocks) == (len(here), 0, 9)
    assert governing.counts.steps == 2000 and len({len(step.sequences) for step in governor.told}) > 5


def test_a_decision_of_an_older_step_is_late() -> None:
    governor = Governor()
    governing = Governing(governor)  # type: ignore[arg-type]
    governing.begun(a_request(1))

    def planned(*decisions: Any) -> int:
        """Tell of a step, plan with these decisions, and return how many were late."""
        governing.computed({}, {}, running=1, waiting=0, free_blocks=9)
        governor.decisions = [_messages.Decision(step=step, steps=steps) for step, steps in decisions]
        before = governing.counts.late
        governing.listen()
        return governing.counts.late - before

    def newest() -> int:
        return governing._number + 1

    governing.listen()
    assert governing.counts.late == 0, "nothing was told yet"
    assert planned((newest(), 0)) == 0
    assert planned() == 1
    assert planned((newest() - 1, 0), (newest(), 0)) == 0, "the late one came with the one that is due"
    # Each step gets the decision of the one before, whether it holds for a step or is the only one.
    for holds in (0, 1):
        assert planned((newest(), 0)) == 0
        assert sum(planned((newest() - 1, holds)) for _ in range(10)) == 10
    # What holds is not waited for, and nothing is late while it does.
    assert planned((newest(), 3)) == 0
    assert [planned() for _ in range(5)] == [0, 0, 0, 1, 1]
    # One that comes late holds for less.
    assert planned((newest(), 0)) == 0
    assert planned((newest() - 1, 3)) == 1
    assert [planned() for _ in range(3)] == [0, 0, 1]


def test_what_was_late_is_told() -> None:
    governor = Governor()
    governing = Governing(governor)  # type: ignore[arg-type]
    request = a_request(1)
    governing.begun(request)
    for _ in range(3):
        governing.computed({}, {}, running=1, waiting=0, free_blocks=9)
        governing.listen()
    governing.release()
    governing.counts.faults += 1
    governing.computed({}, {}, running=1, waiting=0, free_blocks=9)
    assert [step.late for step in governor.told] == [0, 1, 2, 3]
    assert [step.failed_open for step in governor.told] == [0, 0, 0, 2]
    governor.connections += 1  # another governor hears the totals, too
    governing.computed({}, {}, running=1, waiting=0, free_blocks=9)
    assert (governor.told[-1].late, governor.told[-1].failed_open) == (3, 2)


def test_a_decision_that_comes_while_the_model_computes_is_in_time() -> None:
    governor, now = Governor(), [1]
    governing = Governing(governor, clock=lambda: now[0])  # type: ignore[arg-type]
    governing.begun(a_request(1))
    for holds in (0, 9):  # it is due, and it is not
        for _ in range(4):
            governing.computed({"r1": 1}, {}, running=1, waiting=0, free_blocks=9, defer=True)
            governing.listen()  # the next step is planned, and computed for long:
            governing.exchange()  # nothing has come when it begins
            now[0] += 2 * SILENCE_NS
            number = governor.told[-1].number
            governor.decisions = [_messages.Decision(step=number, steps=holds, pause=[1])]
    governing.listen()
    assert governing.counts.failed_open == 0 and governing.paused == {"r1"}
    assert governing.counts.late <= 1, "the first step is told while nothing was heard yet"
