"""Running requests whose thought has ended: which blocks go to the cell's cache, and are pinned for it.

vLLM takes the blocks of a running request without asking, where others need them. What goes to the cell
meanwhile is therefore pinned: it has a reference of its own, and a block that is given up is not written
before that is dropped. There is no vLLM in this file; a pool is what vLLM calls so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from meridian.vllm.handoffs import Ending
from meridian.vllm.prompt import tokens_of
from meridian.vllm.refetches import Refetches

_FULL: Final = 0.8
"""From which use of vLLM's blocks on requests are about to lose them."""

_MOST_PINNED: Final = 0.25
"""Which share of vLLM's blocks may be pinned at a time; what comes on top waits."""

_AGAIN: Final = 1.0
"""How long a request whose thought the cell did not keep is left alone, in seconds."""

_UNKNOWN_DEPTH: Final = 64
"""So many tokens are taken to be under way where vLLM does not say how many may be."""


def settled_after(config: Any) -> int:
    """Return after how many tokens a request that got blocks has filled them, by vLLM's configuration.

    Steps that were under way before bring tokens too, each one and those that were guessed;
    the first on top of these was sampled from the new blocks.
    """
    steps = getattr(config, "max_concurrent_batches", None)
    guessed = getattr(config, "num_speculative_tokens", None)
    return _UNKNOWN_DEPTH if steps is None or guessed is None else (1 + guessed) * steps + 1


class Pool(Protocol):
    """vLLM's blocks."""

    blocks: Sequence[Any]
    num_gpu_blocks: int

    def touch(self, blocks: Sequence[Any]) -> None: ...
    def free_blocks(self, ordered_blocks: Sequence[Any]) -> None: ...
    def get_usage(self) -> float: ...
    def get_num_free_blocks(self) -> int: ...


@dataclass(slots=True)
class _Followed:
    request: Any
    blocks: list[int]
    read: int
    """Tokens that were looked at."""
    settled: int
    """How many tokens the request must have before its cache is known to be computed."""
    ended: int = 0
    """Tokens up to the end of its last thought; 0: none has ended."""
    kept: int = 0
    """Tokens that the cell was asked to keep."""
    tried: int = 0
    """Tokens that the cell did not keep, and until when it is not asked for as many again."""
    tried_until: float = 0.0


class EndedThoughts:
    """Follows running requests, and pins the blocks that leave. One thread has it."""

    def __init__(
        self,
        ends: tuple[tuple[int, ...], ...],
        *,
        block_tokens: int,
        batch: int,
        pool: Pool,
        under_pressure: bool,
        settled_after: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take the ids that end thoughts. `batch`: so many blocks of a thought leave at a time.

        `under_pressure`: only while requests are about to lose their blocks. `settled_after`: so many
        tokens after a request got blocks they are computed, whatever was under way before.
        """
        self._ends, self._longest = ends, max(map(len, ends))
        self._closing = frozenset(end[-1] for end in ends)
        self._block, self._batch = block_tokens, batch
        self._pool, self._under_pressure = pool, under_pressure
        self._settled_after, self._clock = settled_after, clock
        self._followed: dict[str, _Followed] = {}
        self._stopped = False
        self._pinned: dict[bytes, list[Any]] = {}
        self._pins = 0
        self.refetches = Refetches(pool, block_tokens)
        """What comes back to requests that have lost their blocks."""

    def begin(self, request: Any, blocks: Sequence[int]) -> None:
        """Follow a request that has got these blocks, or has got blocks again.

        None: it has some, and they are not told, as by a MultiConnector that lets another connector load.
        """
        if self._stopped or tokens_of(request) is None:
            return
        if not blocks:
            self._followed.pop(request.request_id, None)
            return
        known = self._followed.get(request.request_id)
        if known is None:
            known = _Followed(request, [], len(request.prompt_token_ids), 0)
            self._followed[request.request_id] = known
        known.blocks, known.settled = list(blocks), len(request.all_token_ids) + self._settled_after

    def follow(
        self,
        request: str,
        computed: int,
        new_block_ids: Sequence[Sequence[int]] | None,
        keep: Callable[[Any, int, Sequence[int]], bytes | None],
    ) -> None:
        """Hear of a request of the next step: how much of it is computed, and the blocks that came on top.

        `keep` has the cell keep so many first tokens of a request that are in these blocks, and returns
        by which transfer; None: it does not. Nothing is copied for that.
        """
        known = self._followed.get(request)
        if known is None:
            return
        if new_block_ids:
            known.blocks.extend(new_block_ids[0])
        count = self._due(known, computed)
        tokens = count * self._block
        if count == 0 or (tokens <= known.tried and self._clock() < known.tried_until):
            return
        transfer = keep(known.request, tokens, known.blocks)
        if transfer is None:
            known.tried, known.tried_until = tokens, self._clock() + _AGAIN
        else:
            self._pin(transfer, known.blocks[:count])
            known.kept = tokens

    def stop(self) -> None:
        """Follow no request any more. What is pinned stays so until its transfer is over: it may be read."""
        self._stopped = True
        self._followed.clear()

    def end(self, request: str) -> None:
        """Forget a request that is finished."""
        self._followed.pop(request, None)
        self.refetches.end(request)

    def ended(self, ending: Ending) -> int:
        """Hear how a hand-off has ended; return how many tokens came back with it."""
        if ending.running:
            self._unpin(ending.transfer)
        came = ending.accepted and ending.shared and ending.problem is None
        return ending.tokens if came and self.refetches.is_loading(ending.request) else 0

    @property
    def wanted(self) -> bool:
        """Whether blocks should leave now."""
        return not self._under_pressure or self._pool.get_usage() >= _FULL

    def _due(self, known: _Followed, computed: int) -> int:
        """Return how many first blocks of a request should be kept now.

        `computed`: tokens whose cache was computed or under way before this step.
        """
        self._read(known)
        if known.ended <= known.kept or len(known.request.all_token_ids) < known.settled:
            return 0
        if len(known.blocks) * self._block < computed:
            return 0  # some were not told: which tokens the others have is not known
        # What was sampled is known, so what stands before it was computed.
        there = min(known.ended, computed, len(known.request.all_token_ids) - 1)
        first = max(len(known.request.prompt_token_ids), known.kept) // self._block
        batches = (there // self._block - first) // self._batch
        if batches < 1 or not self.wanted:
            return 0
        count = first + batches * self._batch
        excess = self._pins + count - int(_MOST_PINNED * self._pool.num_gpu_blocks)
        if excess > 0:  # what begins it leaves alone
            count -= -(-excess // self._batch) * self._batch
        return count if count >= known.kept // self._block + self._batch else 0

    def _pin(self, transfer: bytes, blocks: Sequence[int]) -> None:
        """Keep vLLM from writing these blocks until the transfer is over."""
        pinned = [self._pool.blocks[number] for number in blocks]
        self._pool.touch(pinned)
        self._pinned[transfer] = pinned
        self._pins += len(pinned)

    def _unpin(self, transfer: bytes) -> None:
        """Let vLLM have the blocks of a transfer back."""
        pinned = self._pinned.pop(transfer, None)
        if pinned is not None:
            self._pins -= len(pinned)
            self._pool.free_blocks(pinned[::-1])  # as vLLM does: what begins a prompt is used longest

    @property
    def pins(self) -> int:
        """How many blocks are pinned, each as often as it leaves."""
        return self._pins

    def _read(self, known: _Followed) -> None:
        """Look for ends of thoughts among tokens that have come."""
        tokens = known.request.all_token_ids
        for at in range(known.read, len(tokens)):
            if tokens[at] in self._closing:
                begin = max(len(known.request.prompt_token_ids), at + 1 - self._longest)
                tail = tuple(tokens[begin : at + 1])
                if any(tail[-len(end) :] == end for end in self._ends):
                    known.ended = at + 1
        known.read = len(tokens)
