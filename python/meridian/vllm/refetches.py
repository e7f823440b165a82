"""Which request that has lost its blocks may get them back from the cell's cache: one at a time.

What is on its way to a request holds blocks that vLLM cannot take, and the request needs others
before it goes on. Two of them could wait for each other's blocks for ever, and one that has not
room enough would keep those that run from theirs. So a request asks only while all of it fits into
what is free, and the next one asks when this one runs. One that may not is computed anew, as vLLM
does alone::

    ──fits, and no other──► asks ──found──► loads ──runs──► over
                             └── nothing there, or too long ──► over
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from meridian.vllm.prompt import preemptions_of, reads_cache, tokens_of

_FREE: Final = 8
"""One of so many blocks stays free, for those that run."""

_ASKING: Final = 4.0
"""How long a request may ask before it is computed, in seconds: twice as long as what was found is good."""

_LOADING: Final = 4.0
"""How long prompts leave free blocks to one that loads, in seconds: by then it runs, or vLLM lets it wait."""


class FreeBlocks(Protocol):
    """What is asked of vLLM's blocks."""

    num_gpu_blocks: int

    def get_num_free_blocks(self) -> int: ...


class LoadsBlocks(Protocol):
    """What refetches need of the connector's scheduler."""

    def shared_tokens(
        self, request: Any, tokens: Sequence[int] | None, computed: int
    ) -> tuple[int | None, bool]:
        """Return how many of these tokens the cell has beyond the computed ones; None: it is being asked."""

    def load(
        self, request: Any, tokens: Sequence[int] | None, block_ids: Sequence[Sequence[int]], external: int
    ) -> bool:
        """Have what was found of these tokens come into a request's blocks; False: vLLM wants none of it."""

    def drop(self, request: str) -> None:
        """Hear that a request wants nothing of the cell's cache any more."""


@dataclass(slots=True)
class _Refetch:
    request: str
    since: float
    """When it began to ask, or to load."""
    loads: bool = False
    """It has blocks that are being filled, or are, and has not run since."""


class Refetches:
    """Lets one request at a time ask. Everything is called from vLLM's thread."""

    def __init__(self, pool: FreeBlocks, block_tokens: int) -> None:
        self._pool, self._block = pool, block_tokens
        self._one: _Refetch | None = None
        self._over: dict[str, int] = {}
        """Requests that ask no more, by how often they had lost their blocks by then."""

    def loads(self, now: float) -> bool:
        """Say whether a request has blocks that it cannot run with yet, and has not had them for long."""
        return self._one is not None and self._one.loads and now < self._one.since + _LOADING

    def is_loading(self, request: str) -> bool:
        """Say whether it is this one."""
        return self._one is not None and self._one.loads and self._one.request == request

    def matched(
        self, scheduler: LoadsBlocks, request: Any, computed: int, now: float
    ) -> tuple[int | None, bool]:
        """Return how many tokens the cell has of a request that has lost its blocks, prompt and answer.

        None: it is being asked.
        """
        if not reads_cache(request) or tokens_of(request) is None or not self._may_ask(request, now):
            return 0, False
        found, later = scheduler.shared_tokens(request, request.all_token_ids, computed)
        if found == 0:
            self._end(request)
            scheduler.drop(request.request_id)
        return found, later

    def allocated(
        self,
        scheduler: LoadsBlocks,
        request: Any,
        block_ids: Sequence[Sequence[int]],
        external: int,
        now: float,
    ) -> None:
        """Fill the blocks of a request that had lost its own, unless they are filled."""
        if self.is_loading(request.request_id):
            return
        if scheduler.load(request, request.all_token_ids, block_ids, external):
            self._begin(request, now)
        else:
            self._end(request)

    def _may_ask(self, request: Any, now: float) -> bool:
        """Say whether a request that has lost its blocks may ask for them, or go on with that."""
        id_, one = request.request_id, self._one
        if self._over.get(id_) == preemptions_of(request):
            return False
        if one is not None and one.loads:
            return False
        if one is not None and now >= one.since + _ASKING:
            self._one = None
            if one.request == id_:
                self._end(request)
                return False
        if self._one is not None and self._one.request != id_:
            return False
        if not self._fits(request):
            self._one = None
            return False
        if self._one is None:
            self._one = _Refetch(id_, now)
        return True

    def _begin(self, request: Any, now: float) -> None:
        """Hear that what was found for a request is on its way to its blocks. It does not ask again."""
        self._over[request.request_id] = preemptions_of(request)
        if self._one is not None and self._one.request == request.request_id:
            self._one.loads, self._one.since = True, now

    def _end(self, request: Any) -> None:
        """Hear that a request is computed as it is, until it loses its blocks again."""
        self._over[request.request_id] = preemptions_of(request)
        self._leave(request.request_id)

    def runs(self, requests: Iterable[str]) -> None:
        """Hear what the next step computes."""
        if self._one is not None and self._one.loads and self._one.request in requests:
            self._one = None

    def end(self, request: str) -> None:
        """Forget a request that is finished."""
        self._over.pop(request, None)
        self._leave(request)

    def _leave(self, request: str) -> None:
        if self._one is not None and self._one.request == request:
            self._one = None

    def _fits(self, request: Any) -> bool:
        needed = len(request.all_token_ids) // self._block + 1
        return self._pool.get_num_free_blocks() >= needed + self._pool.num_gpu_blocks // _FREE
