"""Prompts that are promised to a decode server, and are offered while they are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from meridian.vllm.counters import Counters
from meridian.vllm.cut import Cut
from meridian.vllm.handoffs import Handoffs
from meridian.vllm.prompt import tokens_of
from meridian.vllm.transfer_params import PrefillLeg

_RETURN: Final = 0.5
"""How long blocks that were taken from an offered prompt are worth waiting for, in seconds.

An agent that stops reading gives them back in milliseconds.
"""


_HELD: Final = 8
"""Prompts that are not computed yet are held in at most one of so many blocks.

An agent takes offers up to a share of them, and others wait for their place in it: what has all
blocks at once would keep it from prompts that are computed.
"""

_FREE: Final = 4
"""One of so many blocks stays free: what is held would not be when another request has to have it."""


class BlockPool(Protocol):
    """What is asked of vLLM's."""

    blocks: Sequence[Any]

    def get_num_free_blocks(self) -> int: ...
    def touch(self, blocks: Sequence[Any]) -> None: ...
    def free_blocks(self, ordered_blocks: Sequence[Any]) -> None: ...


class Holds:
    """References to blocks of vLLM's, as another request with the same prompt would have them.

    vLLM takes the blocks of a running request without asking a connector. It gives none of them
    to another request before the last reference is gone, so what the agent may read stays as it is,
    and what it may write is in no request's use.
    """

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._held: dict[bytes, list[Any]] = {}
        self._let_go = False

    @property
    def most(self) -> int:
        """How many blocks may be held at a time."""
        return len(self._pool.blocks) // _HELD

    @property
    def count(self) -> int:
        """How many blocks are held."""
        return 0 if self._let_go else sum(map(len, self._held.values()))

    def has_place(self, count: int) -> bool:
        """Say whether so many more may be held."""
        return self.count + count <= self.most

    def has_room(self, count: int) -> bool:
        """Say whether a request may be given so many that are held then."""
        left = self._pool.get_num_free_blocks() - count
        return self.has_place(count) and left >= len(self._pool.blocks) // _FREE

    def hold(self, transfer: bytes, block_ids: Sequence[int]) -> None:
        """Refer to the blocks of a transfer, until its end."""
        assert transfer not in self._held
        blocks = [self._pool.blocks[id_] for id_ in block_ids]
        self._pool.touch(blocks)
        self._held[transfer] = blocks

    def release(self, transfer: bytes) -> int:
        """Give up what is held of a transfer, and return how much. vLLM reuses the end of a prompt first."""
        blocks = self._held.pop(transfer, [])
        if blocks and not self._let_go:
            self._pool.free_blocks(blocks[::-1])
        return len(blocks)

    def let_go(self) -> None:
        """Give up all references for a moment in which vLLM gives no block to any request."""
        self._let_go = True
        for blocks in self._held.values():
            self._pool.free_blocks(blocks[::-1])

    def take_back(self) -> None:
        """End that moment."""
        self._let_go = False
        for blocks in self._held.values():
            self._pool.touch(blocks)


class OffersPrompts(Protocol):
    """What early offers need of the connector's scheduler."""

    def tells_chunks(self) -> bool:
        """Say whether there is an agent now that knows chunks."""

    def promised_leg(self, request: Any) -> PrefillLeg | None:
        """Return the leg of a prompt that may be offered while it is computed; None: of any other."""

    def begin_offer(self, prefill: Prefill, *, chunked: bool) -> tuple[bytes, bytes] | None:
        """Offer a prompt that the next step computes, and return the transfer and its ticket.

        `chunked`: it is not computed by then. None: it cannot be offered.
        """

    def computed(self, transfer: bytes, tokens: int) -> None:
        """Tell the agent that these first tokens are computed on every rank."""

    def withdrawn(self) -> None:
        """Tell the agent what is not offered any more."""


@dataclass(slots=True)
class Prefill:
    """A request whose prompt is computed here, promised to a decode server."""

    request: Any
    leg: PrefillLeg
    block_ids: list[list[int]]
    planned: int = 0
    """Up to which token the steps since its offer compute it."""


class EarlyOffers:
    """Offers prompts while they are computed: with their last step, or with any where they have all blocks.

    ::

        allocated ──its step, with all blocks──► offered ──its other steps──► finished
            │                                      ├── lost its blocks ──► withdrawn, held until Freed
            └── its last step ─────────────────────┘
    """

    def __init__(
        self,
        scheduler: OffersPrompts,
        cut: Cut,
        handoffs: Handoffs,
        counters: Counters,
        clock: Callable[[], float],
    ) -> None:
        self._scheduler, self._cut, self._handoffs = scheduler, cut, handoffs
        self._counters, self._clock = counters, clock
        self._prefills: dict[str, Prefill] = {}
        """Requests whose last step has not begun."""
        self._ahead: dict[str, tuple[bytes, bytes]] = {}
        """Transfer and ticket of requests that were offered, and are not finished."""
        self._lost: set[str] = set()
        """Requests that lost their blocks while they were offered: their transfers are used up."""
        self._holds: Holds | None = None
        """Where vLLM's scheduler gives prompts all blocks at once."""

    def __bool__(self) -> bool:
        """Say whether a step may compute something of a prompt that is offered, or will be."""
        return bool(self._prefills)

    def hold_blocks_in(self, pool: BlockPool) -> bool:
        """Take vLLM's pool of blocks from a scheduler that asks `wants_all_blocks`; False: it is of no use.

        Where a window moves on, blocks of a prompt that is computed are given up.
        """
        if not self._cut.blocks_tell_whose:
            return False
        self._holds = Holds(pool)
        return True

    @property
    def most_held_tokens(self) -> int:
        """How many tokens the prompts may have in all that are offered before their last chunk."""
        return self._holds.most * self._cut.publication.block_tokens if self._holds is not None else 0

    def wants_all_blocks(self, request: Any) -> bool:
        """Say whether a prompt is to have all its blocks before it is computed, so that it can be offered."""
        tokens = tokens_of(request)
        return (
            self._holds is not None
            and tokens is not None
            and self._scheduler.tells_chunks()
            and self._leg(request) is not None
            and self._holds.has_room(self._blocks_of(tokens))
        )

    def _blocks_of(self, tokens: Sequence[int]) -> int:
        return -(-len(tokens) // self._cut.publication.block_tokens)

    def _leg(self, request: Any) -> PrefillLeg | None:
        return None if request.request_id in self._lost else self._scheduler.promised_leg(request)

    def allocated(self, request: Any, block_ids: Sequence[Sequence[int]]) -> None:
        """Hear which blocks a request has that begins, or begins again."""
        id_ = request.request_id
        if id_ in self._ahead:  # it gets blocks because it has lost those that it had
            self.lost_blocks(id_)
        if (leg := self._leg(request)) is not None:
            self._prefills[id_] = Prefill(request, leg, [list(ids) for ids in block_ids])

    def scheduled(self, request: str, end: int, new_block_ids: Sequence[Sequence[int]] | None) -> None:
        """Hear that the next step computes a request's tokens up to `end`, in blocks that came on top."""
        prefill = self._prefills.get(request)
        if prefill is None:
            return
        for had, new in zip(prefill.block_ids, new_block_ids or (), strict=False):
            had.extend(new)
        tokens = tokens_of(prefill.request)
        if tokens is None:
            return
        last = end >= len(tokens)
        if request not in self._ahead and (last or self._has_all_blocks(prefill, tokens)):
            self._offer(prefill, chunked=not last)
        if (ahead := self._ahead.get(request)) is not None:
            # The steps before this one are over: vLLM has one under way at a time.
            if prefill.planned > 0 and self._handoffs.is_offered(ahead[0]):
                self._scheduler.computed(ahead[0], prefill.planned)
            prefill.planned = end
            self._handoffs.computes(ahead[0], 0 if last else end)
        if last:
            del self._prefills[request]

    def _has_all_blocks(self, prefill: Prefill, tokens: Sequence[int]) -> bool:
        """Say whether a prompt has them, and may be offered and held now."""
        needed = self._blocks_of(tokens)
        return (
            self._holds is not None
            and len(prefill.block_ids[0]) >= needed
            and self._scheduler.tells_chunks()
            and self._holds.has_place(needed)
        )

    def _offer(self, prefill: Prefill, *, chunked: bool) -> None:
        begun = self._scheduler.begin_offer(prefill, chunked=chunked)
        if begun is None:
            return
        self._ahead[prefill.request.request_id] = begun
        self._counters.ahead += 1
        if chunked:
            assert self._holds is not None  # else it would not be offered before its last step
            self._holds.hold(begun[0], prefill.block_ids[0])
            self._counters.chunked += 1

    def goes_by(self, transfer: bytes) -> bool:
        """Say whether a request that is not finished was offered by this id, even if that is over.

        What is told of that request would be believed of another one that is offered by the same id.
        """
        return any(transfer == ahead for ahead, _ in self._ahead.values())

    def lost_blocks(self, request: str) -> None:
        """Hear that vLLM takes the blocks of a request that is not finished.

        The agent may be reading them: they are held until it has stopped. The request will be computed
        in other blocks, so its transfer is over.
        """
        self._prefills.pop(request, None)
        if (ahead := self._ahead.pop(request, None)) is not None:
            self._lost.add(request)
            self._handoffs.lose(ahead[0], self._clock())
            self._scheduler.withdrawn()

    def withdraw_all(self) -> None:
        """Hear that what the next steps compute does not go with what is offered of their prompts."""
        for request in list(self._ahead):
            self.lost_blocks(request)

    def finished(self, request: str) -> tuple[tuple[bytes, bytes] | None, bool]:
        """Forget a request; return what it was offered by, and whether its transfer is used up."""
        self._prefills.pop(request, None)
        lost = request in self._lost
        self._lost.discard(request)
        return self._ahead.pop(request, None), lost

    def ended(self, transfer: bytes) -> None:
        """Hear that the agent touches the blocks of an offer no more."""
        if self._holds is not None:
            self._holds.release(transfer)

    @property
    def awaits_blocks(self) -> bool:
        """Whether blocks that a request has lost are still held."""
        return self._handoffs.lost is not None

    @property
    def expects_blocks(self) -> bool:
        """Whether they will be vLLM's in a moment, so that no other request need lose its own."""
        lost = self._handoffs.lost
        return lost is not None and self._clock() < lost + _RETURN
