"""The side of the connector that is with vLLM's scheduler."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final, Protocol

from meridian.door import Accept, DoorError, Event, EventKind, Offer, new_transfer, transfer_of
from meridian.vllm.costs import Costs
from meridian.vllm.counters import Counters
from meridian.vllm.cut import NULL_BLOCK, Cut
from meridian.vllm.early_offers import BlockPool, EarlyOffers, Holds, Prefill
from meridian.vllm.ended_thoughts import EndedThoughts
from meridian.vllm.handoffs import Ending, Handoffs, Step, Watch
from meridian.vllm.prompt import kept_of, preemptions_of, reads_cache, tokens_of
from meridian.vllm.settings import Settings
from meridian.vllm.shared import CacheDoor, SharedCache
from meridian.vllm.transfer_params import DecodeLeg, PrefillLeg, leg_of, params_of
from meridian.vllm.weight_changes import Weights

_UNKNOWN: Final[Mapping[str, int]] = {"?": 1}
"""What a step computes of which nothing is said: some request, so that no Find is waited for."""

_GRACE: Final = 2.0
"""How much later than the agent this side loses patience, in seconds."""

_SHARED: Final = 2.0
"""How long a prefix of the cell's cache may take to come, in seconds: by then it could be computed."""

_STILL: Final = 0.005
"""How long a step waits for answers of the cell's cache where nothing else is computed, in seconds.

vLLM would make an empty step instead, with a pause behind it: that takes as long, and ends
later than the answer comes.
"""

_COMPUTING: Final = 600.0
"""How long a prompt may take to be computed while it is offered, in seconds."""

_PRIVATE: Final = (
    "what this server computes is shared with no other until the version of its weights is named "
    "(POST /update_weight_version), or it is started again"
)
_MIXED: Final = (
    "until vLLM's prefix cache is reset nothing of it is handed off, kept or found, since blocks may be "
    "of either (POST /pause, /reset_prefix_cache?reset_running_requests=true and /resume)"
)
_SHARED_AGAIN: Final = "what this server computes is shared again"

_log: Final = logging.getLogger("meridian.vllm")


class ControlDoor(CacheDoor, Protocol):
    """What this side asks of a Door."""

    def write_ticket(self, offer: Offer) -> bytes: ...
    def offer_soon(self, offer: Offer) -> Future[bytes]: ...
    def accept_soon(self, accept: Accept) -> Future[bytes]: ...
    def withdraw_offer_soon(self, transfer: bytes) -> Future[None]: ...
    def cancel_accept_soon(self, transfer: bytes) -> Future[None]: ...
    def decline_ticket_soon(self, ticket: bytes) -> Future[None]: ...
    def progress(self, transfer: bytes, layers: int, tokens: int = ...) -> None: ...
    def close(self, timeout: float = ...) -> None: ...


class ConnectorScheduler:
    """Decides for each request whether its cache comes from elsewhere or goes there.

    vLLM calls it from one thread. What the door's thread hears waits in an
    inbox until then, so nothing here is locked.
    """

    def __init__(
        self,
        settings: Settings,
        cut: Cut,
        *,
        produces: bool,
        consumes: bool,
        finds: bool = True,
        by_layers: bool = False,
        names_media: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take what does not change.

        `finds`: what the cell's shared cache has may be loaded: no step under way writes blocks that
        vLLM gives away. `by_layers`: a prompt may be offered with its last step. `names_media`: requests
        with pictures or sounds say which.
        """
        self._settings, self._cut, self._clock = settings, cut, clock
        self._produces, self._consumes, self._finds, self._by_layers = produces, consumes, finds, by_layers
        self._door: ControlDoor | None = None
        self._handoffs = Handoffs()
        self._inbox: deque[Callable[[float], None]] = deque()
        # Pieces that the cell keeps have all layers, and a prefix that did not come must be told.
        shares = settings.cache and cut.blocks_tell_whose
        costs = None if settings.cache_always else Costs()
        self._weights = Weights(cut.publication.scope.revision, names_media=names_media)
        self._shared = SharedCache(cut, self._inbox.append, clock, costs, self._weights) if shares else None
        self._decided: set[str] = set()
        """Requests with a ticket that were asked for, or never will be."""
        self._tickets: dict[bytes, bytes] = {}
        """Of accepts, by transfer."""
        self._running: Mapping[str, int] = {}
        """What the last step computed, and of how many of these requests the end was not heard yet."""
        self._unfinished = 0
        self._still = _STILL
        """What is left of it in this step."""
        self._served = False
        self._complaints: set[str] = set()
        """Kinds of those that were logged."""
        self.counters = Counters()
        self.early_offers = EarlyOffers(self, cut, self._handoffs, self.counters, clock)
        """Prompts that are offered while they are computed."""
        self._doubtful: Holds | None = None
        self.thoughts: EndedThoughts | None = None
        """Thoughts that are kept while their requests go on; None: none are."""

    def attach(self, door: ControlDoor) -> None:
        """Take the door, whose events go to `happened`."""
        self._door = door
        if self._shared is not None:
            self._shared.attach(door)

    def hold_doubtful_in(self, pool: BlockPool) -> None:
        """Take vLLM's blocks, so that those which an agent that hangs may write can be kept out of use."""
        self._doubtful = Holds(pool)

    def keep_thoughts(self, thoughts: EndedThoughts) -> None:
        """Let the cell keep thoughts that have ended while their requests go on, where it keeps anything."""
        self.thoughts = thoughts if self._shared is not None and self._finds else None

    def happened(self, event: Event) -> None:
        """Hear of an event, on any thread."""
        if event.kind is EventKind.SERVING:
            _log.info("the agent serves this engine: prompts are handed off")
        elif event.kind is EventKind.FENCED and self._served:
            _log.warning("the agent is lost: prompts are computed where they are decoded until it is back")
        if event.kind in (EventKind.SERVING, EventKind.FENCED):
            self._served = event.kind is EventKind.SERVING
        at = self._clock()
        self._inbox.append(lambda now: self._event(event, at, now))

    # What vLLM asks.

    def matched_tokens(self, request: Any, computed: int) -> tuple[int | None, bool]:
        """Return how many tokens can come from elsewhere beyond those that are computed."""
        if self.thoughts is not None and preemptions_of(request) > 0:
            self._hear()
            return self.thoughts.refetches.matched(self, request, computed, self._clock())
        leg = self._decode_leg(request)
        if request.request_id in self._decided or not reads_cache(request):
            return 0, False
        self._hear()
        if leg is None:
            if self.thoughts is not None and self.thoughts.refetches.loads(self._clock()):
                return 0, False  # it would hold blocks that the other one waits for
            return self.shared_tokens(request, tokens_of(request), computed)
        if leg.unused:
            return 0, False
        if self._handoffs.is_moving(leg.transfer):
            return None, False  # for a twin of this request, whose cache can be shared then
        tokens = tokens_of(request)
        if tokens is None or not self._may_accept(request, leg) or self._cut.edge_is_lost(len(tokens)):
            return 0, False
        missing = len(tokens) - computed
        return (missing, True) if missing > 0 else (0, False)

    def allocated(self, request: Any, block_ids: Sequence[Sequence[int]], external: int) -> None:
        """Hear which blocks a request has, and ask for what belongs in them."""
        self.early_offers.allocated(request, block_ids)
        if self.thoughts is not None:
            self.thoughts.begin(request, block_ids[0])
            if preemptions_of(request) > 0:
                self.thoughts.refetches.allocated(self, request, block_ids, external, self._clock())
                return
        if request.request_id in self._decided:
            return
        leg, tokens = self._decode_leg(request), tokens_of(request)
        if leg is None:
            if self.load(request, tokens, block_ids, external):
                self._decided.add(request.request_id)
            return
        self._decided.add(request.request_id)
        if external > 0:
            assert tokens is not None  # else nothing would have been matched
            self._accept(request, leg, tokens, block_ids, external, shared=False)
        else:
            self._decline(leg)

    def finished(
        self, request: Any, block_ids: Sequence[Sequence[int]], *, complete: bool
    ) -> tuple[bool, dict[str, Any] | None]:
        """Hear that a request is finished; return whether to keep its blocks, and what to answer.

        `complete`: it came to its end by itself.
        """
        self._hear()
        if request.request_id in self._running:
            self._unfinished -= 1
        decided = request.request_id in self._decided
        self._decided.discard(request.request_id)
        self.drop(request.request_id)
        if self.thoughts is not None:
            self.thoughts.end(request.request_id)
        ahead, lost = self.early_offers.finished(request.request_id)
        if ahead is not None:
            return self._finish_offer(*ahead, complete=complete)
        if self._handoffs.abandon(request.request_id):
            self._pass_on()
            return False, None  # vLLM keeps the blocks of what it waits for
        match self._leg(request):
            case DecodeLeg() as leg if not decided:
                self._decline(leg)  # finished before it was ever scheduled
            case PrefillLeg() as leg if self._produces and complete and not lost:
                return self._offer(request, leg, block_ids)
        return complete and self._keep(request, lambda: kept_of(request), block_ids) is not None, None

    def step(self, *, idle: bool = False, computes: Mapping[str, int] = _UNKNOWN) -> Step:
        """Return what workers have to know for the next step.

        `idle`: nothing is computed in it. `computes`: how many tokens, by request.
        """
        self._running, self._unfinished, self._still = computes, len(computes), _STILL
        self._hear()
        if self._shared is not None:
            self._shared.scheduled(computes, self._clock())
        if self.thoughts is not None:
            self.thoughts.refetches.runs(computes)
        self._handoffs.lose_patience(self._clock())
        self._leave_what_hangs()
        self._pass_on()
        return self._handoffs.take_step(idle=idle)

    def reported(self, received: Iterable[str]) -> None:
        """Hear that a step is over, and for which requests all workers have reported that loading is."""
        self._hear()
        if self._shared is not None:
            self._shared.computed(self._clock())
        self._handoffs.reported(received, self._clock())
        self._count()

    @property
    def holds(self) -> int:
        """How many requests' blocks wait for a hand-off to end."""
        return self._handoffs.accepts + self._handoffs.offers

    @property
    def awaits_blocks(self) -> bool:
        """Whether vLLM has to step, though no request is left, to hear when its blocks are read no more."""
        return self.early_offers.awaits_blocks or (self.thoughts is not None and self.thoughts.pins > 0)

    # Weights that change while vLLM serves.

    def weights_change(self, by: str, *, empty: bool) -> None:
        """Share nothing any more that was computed until now; `empty`: vLLM has nothing of it itself."""
        if self._weights.shared or (not empty and not self._weights.mixed):
            _log.warning("the model's weights may change (%s): %s", by, _PRIVATE if empty else _MIXED)
        self._weights.changed(empty=empty)
        self._drop_all()

    def reset(self, *, empty: bool) -> None:
        """Find nothing any more of what the cell has kept until now."""
        self._weights.reset(empty=empty)
        if self._shared is not None:
            self._shared.drop_all()
        self._pass_on()

    def weights_named(self, version: str) -> None:
        """Hear from who changes weights which they are."""
        self._weights.named(version)
        then = _MIXED if self._weights.mixed else "what is computed is shared with servers that say the same"
        _log.info("the model's weights are of version %.200r: %s", version, then)

    def adapter_loads(self, lora: Any, *, empty: bool) -> None:
        """Hear of an adapter right before vLLM loads it."""
        if self._weights.adapter_loads(lora, empty=empty):
            _log.warning("the adapter %s becomes another: %s", lora.lora_name, _MIXED)
            self._drop_all()

    def adapter_loaded(self, lora: Any) -> None:
        """Hear that vLLM has loaded it."""
        self._weights.adapter_loaded(lora)

    def cache_resets(self) -> None:
        """Hear that vLLM is going to forget all that it has computed, and gives no block away meanwhile."""
        self._hear()
        if self._doubtful is not None:
            self._doubtful.let_go()

    def cache_was_reset(self, *, done: bool) -> None:
        """Hear whether it has."""
        if self._doubtful is not None:
            self._doubtful.take_back()
        if not done:
            return
        mixed = self._weights.mixed
        self._weights.emptied()
        if mixed:
            _log.info("vLLM's cache was emptied: %s", _SHARED_AGAIN if self._weights.shared else _PRIVATE)

    @property
    def doubtful_blocks(self) -> int:
        """How many blocks are out of use because an agent may write into them."""
        self._hear()
        return self._doubtful.count if self._doubtful is not None else 0

    def _drop_all(self) -> None:
        self.early_offers.withdraw_all()
        if self._shared is not None:
            self._shared.drop_all()
        self._pass_on()

    # Accepts.

    def _decode_leg(self, request: Any) -> DecodeLeg | None:
        leg = self._leg(request) if self._consumes else None
        return leg if isinstance(leg, DecodeLeg) else None

    def _may_accept(self, request: Any, leg: DecodeLeg) -> bool:
        if self._door is None or not self._door.serving:
            return False
        if self._doubtful is not None and self._doubtful.count:
            return False  # of an agent that hangs nothing more is asked
        return not self._handoffs.was_accepted(leg.transfer) and self._weights.scope_of(request) is not None

    def _accept(
        self,
        request: Any,
        leg: DecodeLeg,
        tokens: Sequence[int],
        block_ids: Sequence[Sequence[int]],
        external: int,
        *,
        shared: bool,
    ) -> None:
        assert self._door is not None  # else nothing would have been matched
        now, id_ = self._clock(), request.request_id
        present = len(tokens) - external
        block = self._cut.publication.block_tokens
        filled = slice(present // block, -(-len(tokens) // block))
        fills = tuple(block_ids[0][filled]) if self._cut.blocks_tell_whose else ()
        patience = self._settings.deadline + (self._settings.keep if leg.promised else 0.0)
        if shared:
            patience = min(patience, _SHARED)
        scope = self._weights.kept_scope_of(request) if shared else self._weights.scope_of(request)
        watch = Watch(leg.transfer, fills)
        at_risk = fills or tuple(number for ids in block_ids for number in ids if number != NULL_BLOCK)
        self._handoffs.accept(
            id_, watch, external, now, deadline=now + patience + _GRACE, blocks=at_risk, shared=shared
        )
        self._tickets[leg.transfer] = leg.ticket
        try:
            if scope is None:
                raise ValueError("the weights of the request have changed")
            accept = Accept(
                leg.ticket,
                tokens,
                self._cut.tables(block_ids, len(tokens)),
                scope=scope,
                present_tokens=present,
                push=self._settings.push,
                deadline=patience,
                leg=leg.seal,
            )
            asked = self._door.accept_soon(accept)
        except (DoorError, ValueError) as error:
            self._handoffs.refused(leg.transfer, _as_problem(error), now)
            return
        self._when_answered(asked, lambda problem, now: self._accepted(leg.transfer, problem, now))

    def _accepted(self, transfer: bytes, problem: DoorError | None, now: float) -> None:
        if problem is None:
            self._handoffs.taken(transfer)
        else:
            self._handoffs.refused(transfer, problem, now)

    def _leave_what_hangs(self) -> None:
        """Let requests go on in other blocks of which the agent says nothing."""
        if self._doubtful is None:
            return
        for transfer, blocks in self._handoffs.leave(self._clock(), self._doubtful.has_place):
            self._doubtful.hold(transfer, blocks)
            self.counters.doubtful_blocks += len(blocks)
            self._complain(
                "in doubt",
                f"the agent says nothing of a cache that it was to bring: its request is computed, and "
                f"{len(blocks)} blocks stay out of use until the agent answers, or ends",
            )

    def _decline(self, leg: DecodeLeg) -> None:
        """Let the prefill server have its blocks back. If it cannot be told, its patience ends."""
        if self._door is not None and not self._handoffs.was_accepted(leg.transfer):
            self._tell(self._door.decline_ticket_soon, leg.ticket)

    # The cell's cache.

    def shared_tokens(
        self, request: Any, tokens: Sequence[int] | None, computed: int
    ) -> tuple[int | None, bool]:
        """Return how many tokens the cell has beyond those that are computed; None: it is being asked."""
        shared, id_ = self._shared, request.request_id
        if shared is None or not self._finds or (self._doubtful is not None and self._doubtful.count):
            return 0, False
        now = self._clock()
        shared.review(id_, computed, now)
        if not shared.is_looking(id_):
            try:
                still = 0.0 if self._unfinished else self._still
                if not shared.look(request, tokens, computed, now, still):
                    return 0, False
                self._still = max(0.0, self._still - (self._clock() - now))
            except (DoorError, ValueError) as error:
                self._complain(f"not looked for: {_as_problem(error).code}", f"no prefix is found: {error}")
                return 0, False
            self._hear()
        found = shared.found(id_, self._clock())
        if found is None:
            return None, False
        return (found - computed, True) if found > computed else (0, False)

    def load(
        self,
        request: Any,
        tokens: Sequence[int] | None,
        block_ids: Sequence[Sequence[int]],
        external: int,
    ) -> bool:
        """Take what was found of a request's tokens, as a hand-off; False: vLLM wants none of it."""
        id_ = request.request_id
        if external == 0 or tokens is None or self._shared is None:
            self.drop(id_)
            return False
        found = self._shared.use(id_, self._clock())
        leg = DecodeLeg(found.ticket, transfer_of(found.ticket), b"", False)
        self._accept(request, leg, tokens[: found.tokens], block_ids, external, shared=True)
        return True

    def drop(self, request: str) -> None:
        """Hear that a request wants nothing of the cell's cache any more."""
        if self._shared is not None:
            self._shared.drop(request)

    def keep_running(self, request: Any, tokens: int, blocks: Sequence[int]) -> bytes | None:
        """Let the cell keep first tokens of a request that goes on; return the transfer that reads them."""
        return self._keep(request, lambda: request.all_token_ids[:tokens], (blocks,), running=True)

    def _keep(
        self,
        request: Any,
        tokens: Callable[[], Sequence[int] | None],
        block_ids: Sequence[Sequence[int]],
        *,
        running: bool = False,
    ) -> bytes | None:
        """Let the cell keep tokens that a request has computed; return the transfer that blocks wait for."""
        now = self._clock()
        try:
            kept = self._shared.keep(request, tokens, block_ids) if self._shared is not None else None
        except (DoorError, ValueError) as error:
            self._complain(f"not kept: {_as_problem(error).code}", f"a request's cache is not kept: {error}")
            return None
        if kept is None:
            return None
        keep, asked = kept
        patience = _SHARED if running else self._settings.deadline + _GRACE  # pins are in others' way
        self._handoffs.offer(
            request.request_id,
            keep.transfer,
            request.num_computed_tokens,
            now,
            deadline=now + patience,
            shared=True,
            running=running,
        )
        self._when_answered(asked, lambda problem, now: self._offered(keep.transfer, problem, now))
        return keep.transfer

    # Offers.

    def promised_leg(self, request: Any) -> PrefillLeg | None:
        """Return the leg of a prompt that may be offered while it is computed.

        Only where nothing can come between its last step and its end: vLLM
        would not ask before it takes the blocks of a request that goes on.
        """
        ends_at_once = getattr(request, "max_tokens", 0) == 1 and not getattr(request, "resumable", False)
        if not self._by_layers or not self._produces or not ends_at_once:
            return None
        leg = self._leg(request)
        return leg if isinstance(leg, PrefillLeg) and leg.promised else None

    def tells_chunks(self) -> bool:
        """Say whether there is an agent now that knows chunks."""
        return self._door is not None and self._door.serving and "chunks" in self._door.features

    def begin_offer(self, prefill: Prefill, *, chunked: bool) -> tuple[bytes, bytes] | None:
        """Offer a prompt that the next step computes; `chunked`: and others after that."""
        return self._begin_offer(
            prefill.request, prefill.leg, prefill.block_ids, computing=True, chunked=chunked
        )

    def computed(self, transfer: bytes, tokens: int) -> None:
        """Tell the agent that these first tokens of an offer are computed on every rank."""
        if self._door is not None:
            self._door.progress(transfer, self._layers, tokens)

    def withdrawn(self) -> None:
        """Tell the agent what is not offered any more."""
        self._pass_on()

    def _offer(
        self, request: Any, leg: PrefillLeg, block_ids: Sequence[Sequence[int]]
    ) -> tuple[bool, dict[str, Any] | None]:
        tokens = tokens_of(request)
        if tokens is None or request.num_computed_tokens < len(tokens):
            return False, None
        begun = self._begin_offer(request, leg, block_ids)
        return (False, None) if begun is None else (True, params_of(begun[1]))

    def _begin_offer(
        self,
        request: Any,
        leg: PrefillLeg,
        block_ids: Sequence[Sequence[int]],
        *,
        computing: bool = False,
        chunked: bool = False,
    ) -> tuple[bytes, bytes] | None:
        """Offer a prompt, and return the transfer and its ticket; None: it cannot be offered.

        `computing`: it is computed in the next step. `chunked`: and in others after that.
        """
        tokens, scope = tokens_of(request), self._weights.scope_of(request)
        if tokens is None or scope is None or self._door is None or self._cut.edge_is_lost(len(tokens)):
            return None
        transfer = leg.transfer or new_transfer()
        self._count()  # what has ended under this id must not be taken for what begins now
        if self._handoffs.is_offered(transfer) or self.early_offers.goes_by(transfer):
            message = f"transfer {transfer.hex()} was offered before; its request is not offered again"
            self._complain("offered before", message)
            return None
        now = self._clock()
        keep = self._settings.keep + (_COMPUTING if chunked else 0.0)
        try:
            offer = Offer(
                transfer,
                tokens,
                self._cut.tables(block_ids, len(tokens)),
                layers=0 if computing else self._layers,
                scope=scope,
                keep=keep,
                leg=leg.seal,
            )
            ticket = self._door.write_ticket(offer)
            asked = self._door.offer_soon(offer)
        except (DoorError, ValueError) as error:
            if not computing:  # else it is tried again at the end
                message = f"a prompt is not offered, so the decode engine computes it: {error}"
                self._complain(f"not offered: {_as_problem(error).code}", message)
                self.counters.declined += 1
            return None
        deadline = now + keep + self._settings.deadline + _GRACE
        self._handoffs.offer(
            request.request_id, transfer, len(tokens), now, deadline=deadline, computing=computing
        )
        self._when_answered(asked, lambda problem, now: self._offered(transfer, problem, now))
        return transfer, ticket

    def _finish_offer(
        self, transfer: bytes, ticket: bytes, *, complete: bool
    ) -> tuple[bool, dict[str, Any] | None]:
        """End the computing of what was offered before."""
        deadline = self._clock() + self._settings.keep + self._settings.deadline + _GRACE
        held, good = self._handoffs.finish(transfer, wanted=complete, deadline=deadline)
        if held and complete and self._door is not None:
            self._door.progress(transfer, self._layers)
        self._pass_on()
        return held, params_of(ticket) if complete and good else None

    @property
    def _layers(self) -> int:
        return len(self._cut.publication.layers)

    def _offered(self, transfer: bytes, problem: DoorError | None, now: float) -> None:
        if problem is not None:
            self._complain(f"not taken: {problem.code}", f"an offer was not taken: {problem}")
            self._handoffs.declined(transfer, problem, now)
        else:
            self._handoffs.offered(transfer)

    # Both.

    def _leg(self, request: Any) -> PrefillLeg | DecodeLeg | None:
        try:
            return leg_of(request.kv_transfer_params)
        except ValueError as error:
            self._complain("unreadable", f"a request's kv_transfer_params cannot be read: {error}")
            return None

    def _when_answered(self, asked: Future[Any], hear: Callable[[DoorError | None, float], None]) -> None:
        """Hear the agent's answer in its turn, in between the events."""

        def answered(answer: Future[Any]) -> None:
            error = answer.exception()
            problem = None if error is None else _as_problem(error)
            self._inbox.append(lambda now: hear(problem, now))

        asked.add_done_callback(answered)

    def _hear(self) -> None:
        """Take in what the door's thread has heard, in its order."""
        now = self._clock()
        while self._inbox:
            self._inbox.popleft()(now)
        if self._doubtful is not None:  # what no agent writes any more is given back
            for transfer in self._handoffs.take_settled():
                self.counters.doubtful_blocks -= self._doubtful.release(transfer)

    def _event(self, event: Event, at: float, now: float) -> None:
        """Hear now of what happened then."""
        if event.kind is EventKind.SERVING:
            self._complaints.clear()
        if event.kind is EventKind.READY and self._shared is not None:
            self._shared.ready(event.transfer, at)
        self._handoffs.happened(event, now)

    def _pass_on(self) -> None:
        for cancel in self._handoffs.take_cancels():
            if self._door is not None:
                end = self._door.cancel_accept_soon if cancel.accepted else self._door.withdraw_offer_soon
                self._tell(end, cancel.transfer)
        for ticket in self._shared.take_unused() if self._shared is not None else ():
            if self._door is not None:
                self._tell(self._door.decline_ticket_soon, ticket)
        self._count()

    def _tell(self, tell: Callable[[bytes], Future[None]], what: bytes) -> None:
        """Tell the agent something that it may know, and that ends by itself if it cannot be told."""
        try:
            tell(what)
        except DoorError as error:
            _log.debug("the agent could not be told: %s", error)

    def _count(self) -> None:
        for ending in self._handoffs.take_endings():
            self.counters.count(ending)
            if self.thoughts is not None:
                self.counters.recalled_tokens += self.thoughts.ended(ending)
            self._log_ending(ending)
            if not ending.accepted:
                self.early_offers.ended(ending.transfer)
            ticket = self._tickets.pop(ending.transfer, None) if ending.accepted else None
            if ticket is not None and ending.problem is not None and ending.begun and self._door is not None:
                # It is not tried again, so the prefill server need not keep its blocks for that.
                self._tell(self._door.decline_ticket_soon, ticket)

    def _log_ending(self, ending: Ending) -> None:
        if ending.accepted and ending.problem is not None and not ending.abandoned:
            self._complain(
                f"did not come: {ending.problem.code}", f"a prompt's cache did not come: {ending.problem}"
            )
            return
        what = "accept" if ending.accepted else "offer"
        _log.debug("the %s of %s ended: %s", what, ending.request, ending.problem or "well")

    def at_fault(self, so: str) -> None:
        """Log the fault that is being handled, once of its kind, and what follows from it."""
        if (kind := f"at fault: {so}") not in self._complaints:
            self._complaints.add(kind)
            _log.exception("the connector is at fault; %s", so)

    def _complain(self, kind: str, message: str) -> None:
        """Log a message, once of its kind until the agent has been away. Kinds hold nothing of requests."""
        _log.log(logging.DEBUG if kind in self._complaints else logging.WARNING, "%s", message)
        self._complaints.add(kind)


def _as_problem(error: BaseException) -> DoorError:
    return error if isinstance(error, DoorError) else DoorError("request", str(error))
