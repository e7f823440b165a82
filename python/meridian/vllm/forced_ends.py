"""How a gateway hears that `BudgetLogits` has ended a thought, and why.

A gateway gives a request a name in ``kv_transfer_params.meridian_request``. The worker that ends
its thought tells that name and the reason with the output of the same step, as the connector's
metadata; the connector's scheduler keeps them until the request ends, and writes the reason
into ``stop_reason``, the one member that vLLM copies from its engine into the last chunk of a
stream as into a whole answer. The gateway takes it out again, and finds there what vLLM itself
had to say.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

PREFIX: Final = "meridian_forced_end:"
"""What a `stop_reason` begins with: the reason follows, a colon, and vLLM's own `stop_reason` as JSON."""

_NAME: Final = "meridian_request"
_LONGEST_NAME: Final = 64

MAX_HEARD: Final = 4096
"""Requests whose reason is kept until they end. Where a request has ended meanwhile its reason stays; the
oldest go first."""


def name_of(params: Mapping[str, Any] | None) -> str:
    """Return what a gateway calls a request; empty: it does not ask why its thought ended."""
    name = params.get(_NAME) if isinstance(params, Mapping) else None
    return name if isinstance(name, str) and len(name) <= _LONGEST_NAME else ""


class Outbox:
    """What a worker has to tell with the output of its step. One thread has it.

    vLLM's older runner asks for it before it samples, and sends it after: so what was given out
    is still written into, until the next step begins. The newer runner asks after it has sampled.
    """

    def __init__(self) -> None:
        self._next: dict[str, str] = {}
        self._given: dict[str, str] | None = None
        self.used = False
        """Whether a part of this process ends thoughts."""
        self._counts: dict[str, int] = {}

    def begin(self) -> None:
        """Begin a step: what was given out for the one before is on its way."""
        self._given = None

    def add(self, name: str, reason: str) -> None:
        """Tell that the thought of a request is ended in this step."""
        told = self._next if self._given is None else self._given
        told.setdefault(name, reason)
        if len(told) > MAX_HEARD:  # without a connector it is never read
            del told[next(iter(told))]

    def count(self, reason: str) -> None:
        """Count a thought that is ended, whatever its request is called."""
        self._counts[reason] = self._counts.get(reason, 0) + 1

    def take_counts(self) -> dict[str, int]:
        """Return how many were ended since the last look, by reason."""
        taken, self._counts = self._counts, {}
        return taken

    def give(self) -> dict[str, str]:
        """Return what this step tells: reasons by name. More may come into it."""
        self._given, self._next = self._next, {}
        return self._given


OUTBOX: Final = Outbox()
"""This process's: vLLM makes `BudgetLogits` and the connector without either knowing of the other."""


class Heard:
    """What the connector's scheduler has heard from workers of requests that go on."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._reasons)

    def hear(self, told: Mapping[str, str]) -> None:
        for name, reason in told.items():
            self._reasons.setdefault(name, reason)
        while len(self._reasons) > MAX_HEARD:
            del self._reasons[next(iter(self._reasons))]

    def finish(self, request: Any) -> None:
        """Write why the thought of a request was ended into what vLLM answers of its end."""
        name = name_of(request.kv_transfer_params)
        reason = self._reasons.pop(name, None) if name else None
        if reason is not None:
            request.stop_reason = f"{PREFIX}{reason}:{json.dumps(request.stop_reason)}"
