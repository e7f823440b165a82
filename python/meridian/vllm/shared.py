"""The cell's shared cache, as the connector's scheduler uses it: what begins prompts, what is kept.

Of a request that asks for the beginning of its prompt::

    ──asked──► asked ──answered──► answered ──used──► (forgotten: an accept like any other)
                 │ overdue             │ nothing there, or not wanted: its ticket goes back
                 └─────────────────────┴──► (forgotten)

A ticket that comes for a request which does not wait for it any more goes back, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Final, Protocol

from meridian.door import CacheTerms, Find, Found, Keep, new_transfer, transfer_of
from meridian.vllm.costs import Costs
from meridian.vllm.cut import Cut
from meridian.vllm.transfer_params import seal_of
from meridian.vllm.weight_changes import Weights

_LOOK: Final = 0.1
"""How long the agent may look for a prefix, in seconds."""

_GRACE: Final = 1.0
"""How much later than that the prompt is computed, if nothing is heard of it."""

_WAITS: Final = 8
"""For how many answers a step waits in all: of a crowd that comes at once the others hear with the next."""

_GOOD: Final = 2.0
"""How long a ticket is good for, in seconds: its owner gives it up not much later."""


class CacheDoor(Protocol):
    """What this asks of a Door."""

    @property
    def serving(self) -> bool: ...
    @property
    def features(self) -> frozenset[str]: ...
    @property
    def cache_terms(self) -> CacheTerms: ...
    def keep_soon(self, keep: Keep) -> Future[None]: ...
    def find_soon(self, find: Find) -> Future[Found]: ...


@dataclass(slots=True)
class _Lookup:
    present: int
    """Tokens that the request had when it asked: what was found begins there."""
    deadline: float
    found: Found | None = None
    answered: float = 0.0


@dataclass(slots=True)
class _Load:
    """What was found for a request, on its way."""

    transfer: bytes
    delay: float
    """How long the request did not go on, though nothing was looked for or on its way, in seconds."""
    ready: float | None = None
    """When all of it was there."""


class SharedCache:
    """Asks for prefixes and lets them be kept. Everything is called from vLLM's thread."""

    def __init__(
        self,
        cut: Cut,
        later: Callable[[Callable[[float], None]], None],
        clock: Callable[[], float],
        costs: Costs | None,
        weights: Weights,
    ) -> None:
        """Take what does not change. `later` has something done on vLLM's thread, from any other.

        Without `costs` everything is taken that there is, however fast it could be computed.
        """
        self._cut, self._later, self._clock, self._costs = cut, later, clock, costs
        self._weights = weights
        self._loads: dict[str, _Load] = {}
        self._door: CacheDoor | None = None
        self._lookups: dict[str, _Lookup] = {}
        self._unused: list[bytes] = []
        self._waited = 0.0
        """How long this step has waited for answers, in seconds."""

    def attach(self, door: CacheDoor) -> None:
        """Take the door."""
        self._door = door

    def drop_all(self) -> None:
        """Use nothing of what was found, or is looked for: it is of other weights."""
        for request in list(self._lookups):
            self.drop(request)

    # Prefixes that may be there.

    def is_looking(self, request: str) -> bool:
        """Say whether a request has asked, and has neither used nor dropped what was found."""
        return request in self._lookups

    def review(self, request: str, computed: int, now: float) -> None:
        """Drop what was found for a request where it would not do any more.

        vLLM may have lost blocks since the request asked, which no transfer would
        fill; and a ticket is not good for ever.
        """
        lookup = self._lookups.get(request)
        if lookup is None:
            return
        stale = lookup.found is not None and lookup.found.ticket and now >= lookup.answered + _GOOD
        if computed < lookup.present or stale:
            self.drop(request)

    def look(
        self, request: Any, tokens: Sequence[int] | None, computed: int, now: float, still: float = 0.0
    ) -> bool:
        """Ask for what the cell has of these tokens beyond the computed ones, and stand still for a moment.

        `still`: where no other request waits, for so many seconds. Return whether it was
        asked. DoorError, ValueError: it cannot be.
        """
        terms = self._terms()
        # The last token is computed here in any case, to sample from it.
        if terms is None or tokens is None or len(tokens) - 1 - computed < self._least(terms):
            return False
        assert self._door is not None
        id_ = request.request_id
        if (scope := self._weights.kept_scope_of(request)) is None:
            return False
        saved = self._costs.saved(len(tokens) - 1 - computed) if self._costs is not None else 0.0
        asked = self._door.find_soon(
            Find(
                tokens[:-1],
                scope=scope,
                present_tokens=computed,
                within=_LOOK,
                request_id=id_,
                token_time=saved,
                leg=seal_of(request.kv_transfer_params),
            )
        )
        lookup = self._lookups[id_] = _Lookup(computed, now + _LOOK + _GRACE)

        def answered(answer: Future[Found]) -> None:
            found, at = answer.result() if answer.exception() is None else Found(), self._clock()
            if found.tokens and not _fits(found, len(tokens) - 1):  # vLLM's engine would end with it
                found = Found(reason="what was found is not what was asked for")
            self._later(lambda _: self._answered(id_, lookup, found, at))

        asked.add_done_callback(answered)
        left = max(0.0, _WAITS * terms.find_wait - self._waited)
        wait([asked], max(min(terms.find_wait, left), still))
        self._waited += self._clock() - now
        return True

    def found(self, request: str, now: float) -> int | None:
        """Return how many tokens are there for a request that asked; None: it is not known yet."""
        lookup = self._lookups[request]
        if lookup.found is None and now >= lookup.deadline:
            lookup.found = Found()
        return None if lookup.found is None else lookup.found.tokens

    def use(self, request: str, now: float) -> Found:
        """Return what was found, which is the request's to accept now."""
        lookup = self._lookups.pop(request)
        found = lookup.found
        assert found is not None and found.ticket
        self._loads[request] = _Load(transfer_of(found.ticket), now - lookup.answered)
        return found

    def ready(self, transfer: bytes, at: float) -> None:
        """Hear when a hand-off was there."""
        for load in self._loads.values():
            if load.transfer == transfer:
                load.ready = at

    def scheduled(self, computes: Mapping[str, int], now: float) -> None:
        """Hear what a step computes, by request."""
        self._waited = 0.0
        if self._costs is None:
            return
        self._costs.scheduled(computes, now)
        for request in [request for request in self._loads if request in computes]:
            load = self._loads.pop(request)
            if load.ready is not None:  # else it did not come, and is computed
                self._costs.loaded(load.delay + now - load.ready)

    def computed(self, now: float) -> None:
        """Hear that a step is over that computed something."""
        if self._costs is not None:
            self._costs.computed(now)

    def drop(self, request: str) -> None:
        """Hear that a request wants nothing, or nothing any more."""
        self._loads.pop(request, None)
        lookup = self._lookups.pop(request, None)
        if lookup is not None and lookup.found is not None:
            self._return(lookup.found)

    def take_unused(self) -> list[bytes]:
        """Return tickets to be given back."""
        unused, self._unused = self._unused, []
        return unused

    def _answered(self, request: str, lookup: _Lookup, found: Found, now: float) -> None:
        if self._lookups.get(request) is not lookup or lookup.found is not None:
            self._return(found)
        else:
            lookup.found, lookup.answered = found, now

    def _return(self, found: Found) -> None:
        if found.ticket:
            self._unused.append(found.ticket)

    # What may be kept.

    def keep(
        self, request: Any, kept: Callable[[], Sequence[int] | None], block_ids: Sequence[Sequence[int]]
    ) -> tuple[Keep, Future[None]] | None:
        """Let the cell keep tokens that a request has computed; None: there is nothing to keep.

        `kept` returns them, and is asked only where the cell keeps anything. DoorError, ValueError: it
        cannot be.
        """
        terms = self._terms()
        scope = self._weights.kept_scope_of(request) if terms is not None else None
        tokens = kept() if scope is not None else None
        if terms is None or scope is None or tokens is None or len(tokens) < self._least(terms):
            return None
        assert self._door is not None
        tables = self._cut.tables(block_ids, len(tokens))
        leg = seal_of(request.kv_transfer_params)
        keep = Keep(new_transfer(), tokens, tables, scope=scope, request_id=request.request_id, leg=leg)
        return keep, self._door.keep_soon(keep)

    def _terms(self) -> CacheTerms | None:
        door = self._door
        if door is None or not door.serving or "cache" not in door.features:
            return None
        return door.cache_terms

    def _least(self, terms: CacheTerms) -> int:
        """Return how many tokens the least piece has that is kept."""
        return max(terms.block_tokens, self._cut.publication.block_tokens)


def _fits(found: Found, asked: int) -> bool:
    """Say whether what was found is of the tokens that were asked for, with a ticket."""
    try:
        transfer_of(found.ticket)
    except ValueError:
        return False
    return found.tokens <= asked
