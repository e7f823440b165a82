"""What a governed scheduler says of its steps, and what it makes of decisions.

There is no vLLM in it: requests are what vLLM calls so, known by `request_id`, `prompt_token_ids`,
`output_token_ids` and the like.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from operator import sub
from typing import Any, Final

from meridian.door import Steps
from meridian.door._columns import Columns
from meridian.door._messages import Message
from meridian.vllm.xargs import RequestArgs

TAIL_TOKENS: Final = 256
"""So much of a prompt's end is told: enough to see whether a thought is open in it."""

MAX_GENERATED_TOKENS: Final = 1 << 18

MAX_TOLD_IDS: Final = 1 << 18
"""So many ids of prompts and answers go with one step at most; whom that leaves out is told with the next."""

NEVER: Final = 1 << 62
"""A step that does not come."""

SILENCE_NS: Final = 1_000_000_000
"""After so long without a word on a step what was decided is void: an agent may be there and not decide."""

_log: Final = logging.getLogger("vllm.meridian")  # below vLLM's own, so that it is written where vLLM writes


@dataclass(slots=True)
class Counts:
    """What became of decisions."""

    steps: int = 0
    """Steps that were told."""
    alone: int = 0
    """Steps that no governor heard of: vLLM's own order."""
    late: int = 0
    """Plans that were made without the decision that was due, by none or by one of an older step."""
    failed_open: int = 0
    """How often what was decided was void: no request could run, or the governor did not decide."""
    paused: int = 0
    preempted: int = 0
    released: int = 0
    """Pauses that were lifted because no other request could run."""
    faults: int = 0


class Sequence:
    """A request as the governor knows it."""

    __slots__ = ("computed", "name", "number", "request", "told")

    def __init__(self, number: int, request: Any) -> None:
        self.number = number
        self.name = request.request_id
        self.request = request
        self.computed = 0
        """Tokens whose KV was told to be there."""
        self.told = False
        """Whether the governor knows of it."""


class _LineUp:
    """The requests of which a step tells, while none comes or goes: what the next would look up again."""

    __slots__ = ("names", "numbers", "requests", "sequences", "totals")

    def __init__(self, names: list[str], sequences: list[Sequence]) -> None:
        self.names = names
        """Whom the step concerned, those of whom it does not tell among them."""
        self.sequences = sequences
        self.requests = [sequence.request for sequence in sequences]
        self.numbers = [sequence.number for sequence in sequences]
        self.totals = [sequence.computed for sequence in sequences]
        """What is told of each as computed; `sequence.computed` is behind it until `dissolve`."""

    def newly_computed(self) -> list[int]:
        """Return how many tokens of each have their KV now and were not told."""
        totals = [request.num_computed_tokens - request.num_output_placeholders for request in self.requests]
        computed = list(map(sub, totals, self.totals))
        self.totals = totals
        return computed if min(computed, default=0) >= 0 else [max(0, more) for more in computed]

    def dissolve(self) -> None:
        for sequence, total in zip(self.sequences, self.totals, strict=True):
            sequence.computed = total


class Governing:
    """The facts of steps on their way out, and the decisions that hold. One thread has it."""

    def __init__(self, steps: Steps, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._steps = steps
        self._clock = clock
        self._connection = steps.connections
        self._number = 0
        self._last_sequence = 0
        self._sequences: dict[str, Sequence] = {}
        self._by_number: dict[int, Sequence] = {}
        self._untold: deque[Sequence] = deque()
        """Who is here and was not told to the governor yet, in the order in which they came."""
        self._began: deque[int] = deque()
        """When the steps began that have been planned and not told."""
        self._columns = Columns()
        """What is to be told with the next step, with the columns of the last one."""
        self._has_events = False
        """Whether a request's coming, end or loss is to be told with it."""
        self.owes = False
        """Whether a step is written down and not told yet."""
        self._decisions: list[Any] = []
        """What has come while a step was computed, for the next plan."""
        self._engine = (0, 0, 0, 0, 0)
        """What the last step told of the engine."""
        self._line_up: _LineUp | None = None
        """The requests of which the last step told; None: one has come or gone since."""
        self._blocks: dict[str, list[int]] = {}
        """Blocks that requests have got since the last step was told."""
        self._told = self._heard = 0
        """The newest step that was told, and that of the newest decision that was taken."""
        self._holds = 0
        """For how many plans the order still holds without a word."""
        self.order: dict[str, int] = {}
        """The place of each request that the order names."""
        self.paused: set[str] = set()
        self._order_before: dict[str, int] | None = None
        """The order that a silence made void: the governor does not tell it again where it stays."""
        self._stood_still = False
        """No request could run: until one has, none is paused or preempted."""
        self._unanswered = 0
        """When the first step was told after the newest decision; 0: there is none."""
        self._silent = False
        self.counts = Counts()

    # What happens in the engine.

    def begun(self, request: Any) -> int:
        """Take a request that has come, and return its number."""
        self._last_sequence += 1
        sequence = Sequence(self._last_sequence, request)
        self._sequences[request.request_id] = sequence
        self._by_number[sequence.number] = sequence
        self._untold.append(sequence)
        return sequence.number

    def finished(self, request: Any) -> None:
        """Forget a request that has ended, however it did."""
        self._tell()  # that this one has ended is of a later step
        sequence = self._sequences.pop(request.request_id, None)
        if sequence is None:
            return
        del self._by_number[sequence.number]
        self._dissolve()
        if sequence.told:
            self._columns.step.finished.append(sequence.number)
            self._has_events = True
        self._blocks.pop(request.request_id, None)
        self.paused.discard(request.request_id)

    def stopped(self, request: Any) -> None:
        """Take note that a request has lost its blocks."""
        self._tell()
        if sequence := self._sequences.get(request.request_id):
            if sequence.told:
                self._columns.step.stopped.add(sequence=sequence.number, lost=True)
                self._has_events = True
            self._blocks.pop(request.request_id, None)
            self._dissolve()
            sequence.computed = 0

    def planned(self, blocks: Iterable[tuple[str, Iterable[int]]]) -> None:
        """Take note of a step that begins, and of the blocks that it gave to requests."""
        self._began.append(self._clock())
        for request_id, got in blocks:
            self._blocks.setdefault(request_id, []).extend(got)

    def computed(
        self,
        scheduled: Mapping[str, int],
        found: Mapping[str, list[int]],
        *,
        running: int,
        waiting: int,
        free_blocks: int,
        defer: bool = False,
    ) -> None:
        """Tell of a step that was computed: how many tokens of each, and which were found.

        `defer`: `exchange` follows while the next one is computed. Who comes, ends or loses blocks is not
        kept back for that.
        """
        if self.owes:
            self.exchange()  # the scheduler has not called it
        began = self._began.popleft() if self._began else 0
        if scheduled:
            self._stood_still = False
        if self._steps.connections != self._connection:
            self._tell_all()
        if self._untold:
            self._tell_some(found)
        blocks, self._blocks = self._blocks, {}
        step = self._columns.step
        try:
            if self._steps.governed:
                self._write(scheduled, found, blocks)
                counts = self.counts
                engine = running, waiting, free_blocks, counts.late, counts.failed_open + counts.faults
                if self._engine != engine:
                    self._engine = engine
                    step.running, step.waiting, step.free_blocks, step.late, step.failed_open = engine
                step.took_ns = max(0, self._clock() - began) if scheduled and began else 0
                self.owes = True
            else:
                self.counts.alone += 1
        finally:
            if not self.owes:
                self._clear_events()
        if not defer or self._has_events:
            self._tell()

    def exchange(self) -> None:
        """Tell what is owed, and hear what is decided, for the next plan."""
        self._tell()
        self._decisions += self._take(self._holds < 1)

    def _tell(self) -> None:
        """Send the step that is written down, if there is one, and he who was to hear of it is there."""
        if not self.owes:
            return
        self.owes = False
        try:
            if self._steps.governed and self._steps.connections == self._connection:
                self.counts.steps += 1
                self._steps.send(self._columns.step)
                self._told = self._number
                self._unanswered = self._unanswered or self._clock()
            else:
                self.counts.alone += 1
        finally:
            self._clear_events()

    def _clear_events(self) -> None:
        if self._has_events:
            self._has_events = False
            for events in ("begun", "finished", "stopped"):
                self._columns.step.ClearField(events)

    def _write(
        self,
        scheduled: Mapping[str, int],
        found: Mapping[str, list[int]],
        blocks: Mapping[str, list[int]],
    ) -> None:
        """Write the columns of a step."""
        named = list(scheduled)
        everybody = list(found) == named  # most steps: a token for everybody
        if not (everybody or found.keys() <= scheduled.keys()) or not blocks.keys() <= scheduled.keys():
            named = list(scheduled.keys() | blocks.keys() | found.keys())
            everybody = False
        line_up = self._line_up
        if line_up is None or named != line_up.names:
            line_up = self._form(named)
        nothing: list[int] = []
        if everybody and len(line_up.sequences) == len(named):
            new = list(found.values())
        else:
            new = [found.get(sequence.name, nothing) for sequence in line_up.sequences]
        got = [blocks.get(sequence.name, nothing) for sequence in line_up.sequences] if blocks else []
        self._number += 1
        columns = self._columns
        columns.step.number = self._number
        columns.write("sequences", line_up.numbers)
        columns.write("computed", line_up.newly_computed())
        columns.write("counts", list(map(len, new)))
        columns.write("tokens", list(chain.from_iterable(new)))
        columns.write("block_counts", list(map(len, got)))
        columns.write("blocks", list(chain.from_iterable(got)))

    def _form(self, named: list[str]) -> _LineUp:
        """Return those of whom the governor knows. Who ended in this step is not there any more."""
        self._dissolve()
        known = map(self._sequences.get, named)
        self._line_up = _LineUp(
            named, [sequence for sequence in known if sequence is not None and sequence.told]
        )
        return self._line_up

    def _dissolve(self) -> None:
        if self._line_up is not None:
            self._line_up.dissolve()
            self._line_up = None

    def _tell_some(self, found: Mapping[str, list[int]]) -> None:
        """Tell of newcomers, as many as a step takes, and of what they said before this step."""
        left = MAX_TOLD_IDS
        while self._untold:
            sequence = self._untold[0]
            request = sequence.request
            said = request.output_token_ids
            before = len(said) - len(found.get(request.request_id, ()))
            generated = list(said[:before])[:MAX_GENERATED_TOKENS]
            if left < MAX_TOLD_IDS and len(generated) + TAIL_TOKENS > left:
                return
            self._untold.popleft()
            if sequence.number not in self._by_number:
                continue  # it has ended
            left -= len(generated) + TAIL_TOKENS
            begun = self._columns.step.begun.add(
                sequence=sequence.number,
                id=request.request_id[:128],
                prompt_tokens=request.num_prompt_tokens,
                max_think_tokens=_max_think_tokens(request.sampling_params),
                tenant=(request.cache_salt or "")[:64],
            )
            begun.tail.extend((request.prompt_token_ids or ())[-TAIL_TOKENS:])
            begun.generated.extend(generated)
            sequence.told = self._has_events = True
            self._dissolve()

    def _tell_all(self) -> None:
        """Tell a governor that knows nothing yet of everybody who is here."""
        self._connection = self._steps.connections
        self._columns = Columns()
        self.owes = False
        self._has_events = False
        self._engine = (0, 0, 0, 0, 0)
        self._line_up = None
        self._blocks = {}
        self._forget_decisions()
        for sequence in self._sequences.values():
            sequence.computed = 0
            sequence.told = False
        self._untold = deque(self._sequences.values())

    def close(self) -> None:
        """Leave the governor."""
        self._steps.close()

    # What is decided.

    def listen(self) -> list[Any]:
        """Take the decisions that have come, and return whose blocks are to be taken.

        While a step is owed, they are those that `exchange` has heard. An order that holds is not waited
        for, nor is a silent governor. Without one there is no order, and no request is paused.
        """
        self._holds -= 1
        due = self._holds < 0
        decisions, self._decisions = self._decisions, []
        if not self.owes:
            decisions += self._take(due)
        elif (due or self._overdue()) and (not decisions or decisions[-1].step < self._told):
            decisions += self._steps.take()  # what has come since the exchange
        if not self._steps.governed or self._steps.connections != self._connection:
            self._forget_decisions()
            return []
        if decisions:
            self._heard = decisions[-1].step
        if due and self._heard < self._told:  # none came, or that of an older step
            self.counts.late += 1
        if decisions:
            self._unanswered, self._silent = 0, False
        elif not self._silent and self._overdue():
            self._fail_open()
        victims: list[Any] = []
        for decision in decisions:
            self._apply(decision, victims)
        return victims

    def _take(self, due: bool) -> list[Any]:
        """Return the decisions that have come, and wait for one that is due."""
        terms = self._steps.terms
        return self._steps.take(terms.wait if terms is not None and due and not self._silent else 0.0)

    def _overdue(self) -> bool:
        return self._unanswered > 0 and self._clock() - self._unanswered > SILENCE_NS

    def _apply(self, decision: Message, victims: list[Any]) -> None:
        for preempt in () if self._stood_still else decision.preempt:
            if sequence := self._by_number.get(preempt.sequence):
                victims.append(sequence.request)
        for number in () if self._stood_still else decision.pause:
            if sequence := self._by_number.get(number):
                self.paused.add(sequence.request.request_id)
                self.counts.paused += 1
        for number in decision.resume:
            if sequence := self._by_number.get(number):
                self.paused.discard(sequence.request.request_id)
        if not decision.order_stays:
            self.order = {
                sequence.name: place
                for place, number in enumerate(decision.order)
                if (sequence := self._by_number.get(number))
            }
        elif self._order_before is not None:
            self.order = self._order_before
        self._order_before = None
        # It held from the step on that it follows from: one that is late holds for less.
        self._holds = decision.steps - max(0, self._number - decision.step)

    def _forget_decisions(self) -> None:
        self.order = {}
        self._decisions = []
        self._order_before = None
        self.paused.clear()
        self._holds = self._unanswered = 0
        self._silent = False

    def _fail_open(self) -> None:
        """Go by vLLM's own order, and wait for nothing, until a decision comes."""
        order = self.order
        self._forget_decisions()
        self._order_before, self._silent = order, True
        self.counts.failed_open += 1
        _log.warning("meridian: the governor does not decide; vLLM plans by itself until it does")

    def release(self) -> None:
        """Lift all pauses: no request could run, and an engine must not stand still."""
        self.counts.released += len(self.paused)
        self.counts.failed_open += 1
        self._stood_still = True
        self.paused.clear()

    def arranged(self, requests: Iterable[Any]) -> list[Any]:
        """Return requests in the order: those that it names, those that it does not, those that are paused.

        The request that stands last gives its blocks up first.
        """
        order, paused = self.order, self.paused
        last = len(order)
        requests = list(requests)
        places = [order.get(request.request_id, last) for request in requests]
        if paused:
            places = [
                last + 1 if request.request_id in paused else place
                for request, place in zip(requests, places, strict=True)
            ]
        ranks = sorted(range(len(places)), key=places.__getitem__)
        return [requests[rank] for rank in ranks]


def _max_think_tokens(params: Any) -> int:
    """Return what a request asks for; 0: it does not say."""
    if params is None:
        return 0
    try:
        asked = RequestArgs.read(params.extra_args).max_think_tokens
    except ValueError:  # it was refused where it came in, or not looked at there
        asked = None
    if asked is None:
        asked = getattr(params, "thinking_token_budget", None)
    return asked if isinstance(asked, int) and 0 < asked < 1 << 31 else 0
