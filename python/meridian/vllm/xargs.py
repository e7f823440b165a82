"""What a request may ask of `BudgetLogits`: members of `vllm_xargs`, which clients write.

============================  ==========================================================
``meridian_max_think_tokens``  the most tokens of a thought, 0 to 2147483647; the server's own cap
                              holds beside it. As vLLM's ``thinking_token_budget``
``meridian_min_think_tokens``  entropies end no thought that is shorter
``meridian_entropy``           0: entropies do not end this request's thoughts; 1, or left out: they may
``meridian_think_tokens``      the prompt ends with so many tokens of an open thought, which goes on
============================  ==========================================================

A gateway, and no client of it, says in ``kv_transfer_params.meridian_answers`` that the prompt ends
within the answer: so does that of a stream which goes on here after its thought.

``meridian_sequence`` is the scheduler's number of the request. It is written within the engine,
and refused where a client writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from meridian._thought import Terms
from meridian.fault import nearest

SEQUENCE: Final = "meridian_sequence"
_ANSWERS: Final = "meridian_answers"
_LONGEST: Final = (1 << 31) - 1
_MOST: Final = {
    "meridian_max_think_tokens": _LONGEST,
    "meridian_min_think_tokens": _LONGEST,
    "meridian_entropy": 1,
    "meridian_think_tokens": _LONGEST,
}


@dataclass(frozen=True, slots=True)
class RequestArgs:
    """What one request asked for; None: it did not say."""

    max_think_tokens: int | None = None
    min_think_tokens: int | None = None
    entropy: int | None = None
    think_tokens: int | None = None
    answers: bool = False
    """The prompt ends within the answer: it opens no thought, whatever it looks like."""

    @classmethod
    def read(cls, extra: Mapping[str, Any] | None) -> RequestArgs:
        """Read what a client wrote; ValueError says which member is wrong."""
        given: dict[str, int] = {}
        for name, value in (extra or {}).items():
            if not isinstance(name, str) or not name.startswith("meridian_") or name == SEQUENCE:
                continue
            if name not in _MOST:
                meant = nearest(name, tuple(_MOST))
                raise ValueError(
                    f"vllm_xargs.{name}: there is no such member"
                    + (f"; did you mean {meant}?" if meant else "")
                )
            if not isinstance(value, int) or not 0 <= value <= _MOST[name]:
                raise ValueError(
                    f"vllm_xargs.{name}: {repr(value)[:64]} is no whole number from 0 to {_MOST[name]}"
                )
            given[name.removeprefix("meridian_")] = int(value)
        params = (extra or {}).get("kv_transfer_params")
        return cls(**given, answers=isinstance(params, Mapping) and params.get(_ANSWERS) is True)

    @classmethod
    def from_client(cls, extra: Mapping[str, Any] | None) -> RequestArgs:
        """Read what came from outside of the engine."""
        if extra and SEQUENCE in extra:
            raise ValueError(f"vllm_xargs.{SEQUENCE}: the scheduler alone numbers requests; leave it out")
        return cls.read(extra)

    def terms(self, of_server: Terms) -> Terms:
        """Return the terms of this request, which are nowhere looser than the server's."""
        cap = of_server.max_think_tokens
        least = self.min_think_tokens
        return replace(
            of_server,
            max_think_tokens=cap if self.max_think_tokens is None else min(cap, self.max_think_tokens),
            min_think_tokens=of_server.min_think_tokens if least is None else least,
            entropy=of_server.entropy and self.entropy != 0,
        )


def sequence_of(extra: Mapping[str, Any] | None) -> int | None:
    """Return the number that the scheduler gave a request."""
    number = (extra or {}).get(SEQUENCE)
    return number if isinstance(number, int) and not isinstance(number, bool) else None
