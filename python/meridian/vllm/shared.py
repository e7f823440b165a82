"""The cell's shared cache, as the scheduler's half uses it: what begins prompts, what is kept.

Of a request that asks for the beginning of its prompt::

    ──asked──► asked ──answered──► answered ──used──► (forgotten: an intake like any other)
                 │ overdue             │ nothing there, or not wanted: its ticket goes back
                 └─────────────────────┴──► (forgotten)

A ticket that comes for a request which does not wait for it any more goes back, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Final, Protocol

from meridian.door import CacheTerms, Find, Found, Keep, Scope, new_transfer
from meridian.vllm.cut import Cut
from meridian.vllm.prompt import kept_of, scope_of, tokens_of

_LOOK: Final = 0.1
"""How long the agent may look for a prefix, in seconds."""

_GRACE: Final = 1.0
"""How much later than that the prompt is computed, if nothing is heard of it."""

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


class SharedCache:
    """Asks for prefixes and lets them be kept. Everything is called from vLLM's thread."""

    def __init__(self, cut: Cut, later: Callable[[Callable[[float], None]], None]) -> None:
        """Take what does not change. `later` has something done on vLLM's thread, from any other."""
        self._cut, self._later = cut, later
        self._door: CacheDoor | None = None
        self._lookups: dict[str, _Lookup] = {}
        self._generation = ""
        self._unused: list[bytes] = []

    def attach(self, door: CacheDoor) -> None:
        """Take the door."""
        self._door = door

    def reset(self) -> None:
        """Find nothing any more of what was kept until now, by anybody: the weights may be others."""
        self._generation = new_transfer().hex()
        for request in list(self._lookups):
            self.drop(request)

    # Prefixes that may be there.

    def is_looking(self, request: str) -> bool:
        """Say whether a request has asked, and has neither used nor dropped what was found."""
        return request in self._lookups

    def review(self, request: str, computed: int, now: float) -> None:
        """Drop what was found for a request where it would not do any more.

        vLLM may have lost blocks since the request asked, which nobody would
        fill; and a ticket is not good for ever.
        """
        lookup = self._lookups.get(request)
        if lookup is None:
            return
        stale = lookup.found is not None and lookup.found.ticket and now >= lookup.answered + _GOOD
        if computed < lookup.present or stale:
            self.drop(request)

    def look(self, request: Any, computed: int, now: float) -> bool:
        """Ask for what the cell has of a prompt beyond the computed tokens, and stand still for a moment.

        Return whether it was asked. DoorError, ValueError: it cannot be.
        """
        tokens, terms = tokens_of(request), self._terms()
        # The last token is computed here in any case, to sample from it.
        if terms is None or tokens is None or len(tokens) - 1 - computed < self._least(terms):
            return False
        assert self._door is not None
        id_ = request.request_id
        scope = self._scope(request)
        asked = self._door.find_soon(
            Find(tokens[:-1], scope=scope, present_tokens=computed, within=_LOOK, request_id=id_)
        )
        lookup = self._lookups[id_] = _Lookup(computed, now + _LOOK + _GRACE)

        def answered(answer: Future[Found]) -> None:
            found = answer.result() if answer.exception() is None else Found()
            self._later(lambda now: self._answered(id_, lookup, found, now))

        asked.add_done_callback(answered)
        wait([asked], terms.find_wait)
        return True

    def found(self, request: str, now: float) -> int | None:
        """Return how many tokens are there for a request that asked; None: it is not known yet."""
        lookup = self._lookups[request]
        if lookup.found is None and now >= lookup.deadline:
            lookup.found = Found()
        return None if lookup.found is None else lookup.found.tokens

    def use(self, request: str) -> Found:
        """Return what was found, which is the request's to accept now."""
        found = self._lookups.pop(request).found
        assert found is not None and found.ticket
        return found

    def drop(self, request: str) -> None:
        """Hear that a request wants nothing, or nothing any more."""
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

    def keep(self, request: Any, block_ids: Sequence[Sequence[int]]) -> tuple[Keep, Future[None]] | None:
        """Let the cell keep what a request has computed; None: there is nothing to keep.

        DoorError, ValueError: it cannot be.
        """
        tokens, terms = kept_of(request), self._terms()
        if terms is None or tokens is None or len(tokens) < self._least(terms):
            return None
        assert self._door is not None
        tables = self._cut.tables(block_ids, len(tokens))
        keep = Keep(new_transfer(), tokens, tables, scope=self._scope(request), request_id=request.request_id)
        return keep, self._door.keep_soon(keep)

    def _scope(self, request: Any) -> Scope:
        scope = scope_of(request)
        if not self._generation:
            return scope
        published = self._cut.publication.scope.revision
        return dataclasses.replace(scope, revision=f"{published}#{self._generation}")

    def _terms(self) -> CacheTerms | None:
        door = self._door
        if door is None or not door.serving or "cache" not in door.features:
            return None
        return door.cache_terms

    def _least(self, terms: CacheTerms) -> int:
        """Return how many tokens the least piece has that is kept."""
        return max(terms.block_tokens, self._cut.publication.block_tokens)
