"""Which requests wait for which hand-offs. No clock, no I/O: the connector's scheduler feeds it.

Of an accept, whose blocks vLLM keeps until a worker reports the request::

              taken          Ready
    asked ───────────► moving ─────────────────────────────────► over ──reported──► (forgotten)
      │ └── no answer      └── Failed ──► broken ── Freed ────────▲
      │        └──► doubtful ── Fenced ───────────────────────────┤
      └── refused ────────────────────────────────────────────────┘

An accept that is not wanted any more (the client is gone, its time is over) is
cancelled, and goes on as before: its blocks are vLLM's again when the agent
says so, not when a client lost patience. Of an agent that says nothing for long the request
is let go, to be computed in other blocks; its own stay in doubt, and out of use, until then::

    any but over ──no word of it──► left ── Ready, Freed or Fenced ──► (its blocks are vLLM's)

An offer's blocks are vLLM's again at Freed, or when the agent refuses it; those of what
the cell's cache is to keep likewise. What it is to keep of a request that goes on is pinned
until then, and no worker hears of it. Of an offer
that was made while its prompt is computed they are vLLM's own until the request is
finished, whatever becomes of the offer. A request that loses its blocks before has lost
its offer, too: it is withdrawn, and over at Freed.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from meridian.door import DoorError, Event, EventKind

NO_ANSWER: Final = "no_answer"

_DOUBT: Final = 5.0
"""How long an accept may be over its time, in seconds, before its request goes on without the agent."""

_MAX_ACCEPTED: Final = 1 << 13
"""How many transfers are remembered, so that none is accepted twice."""


@dataclass(frozen=True, slots=True)
class Watch:
    """An accept that workers may hear of."""

    transfer: bytes
    blocks: tuple[int, ...]
    """Those that it fills. Empty where their numbers do not say whose they are."""


@dataclass(frozen=True, slots=True)
class Step:
    """What workers are told with one step of the engine."""

    watches: dict[str, Watch] = field(default_factory=dict)
    """Requests that wait from now on."""
    landed: tuple[str, ...] = ()
    """Requests whose cache is there."""
    failed: tuple[str, ...] = ()
    """Requests whose cache will not come."""
    left: tuple[str, ...] = ()
    """Requests whose cache may still come into the blocks that they had, and that begin anew in others."""
    freed: tuple[str, ...] = ()
    """Requests whose offered blocks are free."""
    computing: tuple[tuple[bytes, int], ...] = ()
    """Transfers that are offered, and up to which token this step computes them; 0: to the end."""
    idle: bool = False
    """Nothing is computed in this step: vLLM steps only to hear of hand-offs."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a hand-off ended, for logs and figures."""

    request: str
    transfer: bytes
    accepted: bool
    seconds: float
    tokens: int
    problem: DoorError | None
    abandoned: bool
    """No client waited for it any more."""
    begun: bool
    """The agent had taken it up, so that its ticket is this engine's to give back."""
    shared: bool
    """It was with the cell's cache, and with no server."""
    running: bool = False
    """Of an offer: its request goes on."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """The agent is to be told that something is not wanted any more."""

    transfer: bytes
    accepted: bool


class _Phase(enum.Enum):
    ASKED = "asked"
    MOVING = "moving"
    BROKEN = "broken"
    DOUBTFUL = "doubtful"
    LEFT = "left"
    OVER = "over"


@dataclass(slots=True)
class _Accept:
    request: str
    transfer: bytes
    tokens: int
    began: float
    deadline: float
    shared: bool
    blocks: tuple[int, ...]
    """Into which the agent may write."""
    phase: _Phase = _Phase.ASKED
    problem: DoorError | None = None
    unwanted: bool = False
    abandoned: bool = False
    """Unwanted because the request is finished."""
    told: bool = False
    """Workers know how it ended."""
    begun: bool = False


@dataclass(slots=True)
class _Offer:
    request: str
    transfer: bytes
    tokens: int
    began: float
    deadline: float
    computing: bool
    """Its request is not finished."""
    shared: bool
    running: bool = False
    """It goes on, and its blocks are pinned."""
    unwanted: bool = False
    lost_at: float | None = None
    """When its request has lost its blocks."""


class Handoffs:
    """Every hand-off whose blocks vLLM does not have back."""

    def __init__(self) -> None:
        self._accepts: dict[str, _Accept] = {}
        self._moving: dict[bytes, _Accept] = {}
        self._accepted: OrderedDict[bytes, None] = OrderedDict()
        self._offers: dict[bytes, _Offer] = {}
        self._watches: dict[str, Watch] = {}
        self._freed: list[str] = []
        self._computing: list[tuple[bytes, int]] = []
        self._taken: set[bytes] = set()
        """Transfers that a destination has taken, and whose requests are not finished."""
        self._left: list[str] = []
        self._settled: list[bytes] = []
        self._cancels: list[Cancel] = []
        self._endings: list[Ending] = []

    # Accepts.

    def accept(
        self,
        request: str,
        watch: Watch,
        tokens: int,
        now: float,
        *,
        deadline: float,
        blocks: tuple[int, ...] = (),
        shared: bool = False,
    ) -> None:
        """Begin an accept, right before the agent is asked for it.

        `blocks`: into which it may write. `shared`: from the cell's cache.
        """
        assert request not in self._accepts and watch.transfer not in self._accepted
        accept = _Accept(request, watch.transfer, tokens, now, deadline, shared, blocks)
        self._accepts[request] = self._moving[watch.transfer] = accept
        self._watches[request] = watch
        self._accepted[watch.transfer] = None
        if len(self._accepted) > _MAX_ACCEPTED:
            self._accepted.popitem(last=False)

    def is_moving(self, transfer: bytes) -> bool:
        """Say whether a transfer is on its way already, for another request."""
        accept = self._moving.get(transfer)
        return accept is not None and accept.phase is not _Phase.LEFT

    def was_accepted(self, transfer: bytes) -> bool:
        """Say whether a transfer was accepted before.

        The agent would refuse it. It must not even be asked: what a rank hears
        late of the first time would be taken for the second.
        """
        return transfer in self._accepted

    def taken(self, transfer: bytes) -> None:
        """Hear that the agent has begun."""
        accept = self._moving.get(transfer)
        if accept is None or accept.phase not in (_Phase.ASKED, _Phase.LEFT):
            return
        accept.begun = True
        if accept.phase is _Phase.ASKED:
            accept.phase = _Phase.MOVING
        if accept.unwanted:
            self._cancels.append(Cancel(transfer, True))

    def refused(self, transfer: bytes, problem: DoorError, now: float) -> None:
        """Hear that the agent does not begin, or that it does not answer."""
        accept = self._moving.get(transfer)
        if accept is None or accept.phase not in (_Phase.ASKED, _Phase.LEFT):
            return
        if accept.phase is _Phase.LEFT:
            if problem.code != NO_ANSWER:
                self._settle(accept)
            return
        accept.problem = problem
        if problem.code == NO_ANSWER:
            accept.phase = _Phase.DOUBTFUL  # until the connection has ended
        else:
            self._over(accept, now)

    def abandon(self, request: str) -> bool:
        """Hear that a request is finished; return whether its blocks wait for an accept to end."""
        accept = self._accepts.get(request)
        if accept is None:
            return False
        accept.abandoned = True
        self._unwant(accept)
        return True

    def _unwant(self, accept: _Accept) -> None:
        if not accept.unwanted:
            accept.unwanted = True
            if accept.phase is _Phase.MOVING:
                self._cancels.append(Cancel(accept.transfer, True))

    def _over(self, accept: _Accept, now: float) -> None:
        accept.phase = _Phase.OVER
        del self._moving[accept.transfer]
        self._end(accept, True, now, accept.problem)

    def leave(self, now: float, may: Callable[[int], bool]) -> list[tuple[bytes, tuple[int, ...]]]:
        """Let requests go on of whose accepts the agent has said nothing for too long.

        `may`: whether so many blocks more may be out of use; else the request waits.

        Return the accepts, and the blocks into which the agent may still write: the caller keeps these
        out of use until the accept is among `take_settled`.
        """
        left: list[_Accept] = []
        for accept in self._moving.values():
            late = now >= accept.deadline + _DOUBT and accept.phase is not _Phase.LEFT
            if late and may(len(accept.blocks) + sum(len(other.blocks) for other in left)):
                left.append(accept)
        for accept in left:
            accept.problem = DoorError(NO_ANSWER, "the agent does not say whether it still writes")
            accept.phase, accept.told = _Phase.LEFT, True
            self._left.append(accept.request)
            self._end(accept, True, now, accept.problem)
        return [(accept.transfer, accept.blocks) for accept in left]

    def take_settled(self) -> list[bytes]:
        """Return accepts that were left, and whose blocks the agent touches no more."""
        settled, self._settled = self._settled, []
        return settled

    def _settle(self, accept: _Accept) -> None:
        del self._moving[accept.transfer]
        self._settled.append(accept.transfer)

    # Offers.

    def offer(
        self,
        request: str,
        transfer: bytes,
        tokens: int,
        now: float,
        *,
        deadline: float,
        computing: bool = False,
        shared: bool = False,
        running: bool = False,
    ) -> None:
        """Begin an offer, right before the agent hears of it.

        `computing`: its prompt is being computed. `shared`: for the cell's cache. `running`: its request
        goes on.
        """
        assert transfer not in self._offers
        self._offers[transfer] = _Offer(request, transfer, tokens, now, deadline, computing, shared, running)

    def computes(self, transfer: bytes, tokens: int) -> None:
        """Hear up to which token the next step computes an offer; 0: to the end."""
        if transfer in self._offers:
            self._computing.append((transfer, tokens))

    def lose(self, transfer: bytes, now: float) -> None:
        """Hear that an offer's request has lost its blocks before its end."""
        self._taken.discard(transfer)
        if (offer := self._offers.get(transfer)) is not None:
            offer.lost_at = now
            self._withdraw(offer)

    @property
    def lost(self) -> float | None:
        """When the last request has lost blocks that the agent may still touch."""
        return max((o.lost_at for o in self._offers.values() if o.lost_at is not None), default=None)

    def finish(self, transfer: bytes, *, wanted: bool, deadline: float) -> tuple[bool, bool]:
        """Hear that an offer's request is finished, and until when the offer may stand from now on.

        Return whether its blocks wait for the offer to end, and whether the
        offer stands or was taken.
        """
        taken = transfer in self._taken
        self._taken.discard(transfer)
        offer = self._offers.get(transfer)
        if offer is None:
            return False, taken
        offer.computing, offer.deadline = False, min(offer.deadline, deadline)
        if not wanted:
            self._withdraw(offer)
        return True, True

    def _withdraw(self, offer: _Offer) -> None:
        if not offer.unwanted:
            offer.unwanted = True
            self._cancels.append(Cancel(offer.transfer, False))

    def is_offered(self, transfer: bytes) -> bool:
        """Say whether an offer of that id stands."""
        return transfer in self._offers

    def offered(self, transfer: bytes) -> None:
        """Hear that the agent has taken an offer up. Before that it did not know what is withdrawn."""
        if (offer := self._offers.get(transfer)) is not None and offer.unwanted:
            self._cancels.append(Cancel(transfer, False))

    def declined(self, transfer: bytes, problem: DoorError, now: float) -> None:
        """Hear that the agent does not take an offer. Where it did not answer, Freed comes."""
        if problem.code != NO_ANSWER:
            self._free(transfer, problem, now)

    def _free(self, transfer: bytes, problem: DoorError | None, now: float) -> None:
        offer = self._offers.pop(transfer, None)
        if offer is not None:
            if not offer.computing and not offer.running:
                self._freed.append(offer.request)
            elif offer.computing and problem is None and offer.lost_at is None:
                self._taken.add(transfer)
            self._end(offer, False, now, problem)

    # Both.

    def happened(self, event: Event, now: float) -> None:
        """Hear of an event at the door. What is late, or came before, changes nothing."""
        if event.kind is EventKind.FENCED:
            for accept in list(self._moving.values()):
                if accept.phase is _Phase.DOUBTFUL:
                    self._over(accept, now)
                elif accept.phase is _Phase.LEFT:
                    self._settle(accept)
        elif not event.accepted:
            if event.kind is EventKind.FREED:
                self._free(event.transfer, event.problem, now)
        elif (found := self._moving.get(event.transfer)) is not None:
            self._accept_event(found, event, now)

    def _accept_event(self, accept: _Accept, event: Event, now: float) -> None:
        # An event may be heard before the answer that it follows: the caller looks at
        # the answer only after asking, and by then all may be over.
        running = accept.phase in (_Phase.ASKED, _Phase.MOVING)
        accept.begun = True
        if accept.phase is _Phase.LEFT:
            if event.kind in (EventKind.READY, EventKind.FREED):
                self._settle(accept)
        elif event.kind is EventKind.READY and running:
            self._over(accept, now)
        elif event.kind is EventKind.FAILED and running:
            accept.phase = _Phase.BROKEN
            accept.problem = event.problem or DoorError("move", "the agent does not say why")
        elif event.kind is EventKind.FREED and (running or accept.phase is _Phase.BROKEN):
            accept.problem = accept.problem or event.problem or DoorError("move", "the agent gave up")
            self._over(accept, now)

    def lose_patience(self, now: float) -> None:
        """Cancel what takes longer than it may."""
        for accept in self._moving.values():
            if now >= accept.deadline:
                self._unwant(accept)
        for offer in self._offers.values():
            if now >= offer.deadline:
                self._withdraw(offer)

    def reported(self, received: Iterable[str], now: float) -> None:
        """Hear for which requests all workers have reported the end."""
        for request in received:
            accept = self._accepts.pop(request, None)
            if accept is None:
                continue
            if accept.phase not in (_Phase.OVER, _Phase.LEFT):  # workers heard Ready sooner
                self._over(accept, now)

    @property
    def accepts(self) -> int:
        """How many requests' blocks wait for an accept."""
        return len(self._accepts)

    @property
    def offers(self) -> int:
        """How many requests' blocks are offered."""
        return len(self._offers)

    # What follows from it.

    def take_step(self, *, idle: bool) -> Step:
        """Return what workers have not been told yet."""
        ended = [i for i in self._accepts.values() if i.phase is _Phase.OVER and not i.told]
        for accept in ended:
            accept.told = True
        step = Step(
            watches=self._watches,
            landed=tuple(i.request for i in ended if i.problem is None),
            failed=tuple(i.request for i in ended if i.problem is not None),
            left=tuple(self._left),
            freed=tuple(self._freed),
            computing=tuple(self._computing),
            idle=idle,
        )
        self._watches, self._left, self._freed, self._computing = {}, [], [], []
        return step

    def take_cancels(self) -> list[Cancel]:
        """Return what the agent has to be told."""
        cancels, self._cancels = self._cancels, []
        return cancels

    def take_endings(self) -> list[Ending]:
        """Return what has ended since the last time."""
        endings, self._endings = self._endings, []
        return endings

    def _end(self, of: _Accept | _Offer, accepted: bool, now: float, problem: DoorError | None) -> None:
        abandoned = of.abandoned if isinstance(of, _Accept) else of.unwanted
        begun = isinstance(of, _Offer) or of.begun
        self._endings.append(
            Ending(
                of.request,
                of.transfer,
                accepted,
                now - of.began,
                of.tokens,
                problem,
                abandoned,
                begun,
                of.shared,
                isinstance(of, _Offer) and of.running,
            )
        )
