"""A vLLM, its workers and an agent, as far as the connector's two halves can tell, ruled by chance."""

from __future__ import annotations

import base64
import random
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from meridian.door import (
    Accept,
    CacheTerms,
    DoorError,
    Event,
    EventKind,
    Find,
    Found,
    GPUMemory,
    Keep,
    Layer,
    Offer,
    Publication,
    Scope,
)
from meridian.door.ticket import Home, Ticket
from meridian.vllm.cut import Cut
from meridian.vllm.handoffs import Step
from meridian.vllm.scheduler import ConnectorScheduler
from meridian.vllm.settings import Settings
from meridian.vllm.worker import ConnectorWorker

BLOCK = 4
KEY = bytes(32)
CUT = Cut(Publication("fp32", [Layer(2, 8)] * 2, BLOCK, 1000, scope=Scope(model="m")), (0,))
WINDOWED = Cut(Publication("fp32", [Layer(2, 8, window_tokens=8)] * 2, BLOCK, 1000), (0,))
SETTINGS = Settings(socket="", deadline=10.0, keep=30.0)


@dataclass
class Request:
    """What the connector looks at of a vLLM request."""

    request_id: str
    prompt_token_ids: list[int] | None
    kv_transfer_params: dict[str, Any] | None
    num_computed_tokens: int = 0
    prompt_embeds: object = None
    lora_request: Any = None
    mm_features: list[Any] = field(default_factory=list)
    cache_salt: str | None = None
    skip_reading_prefix_cache: bool = False
    max_tokens: int = 1
    answer: list[int] = field(default_factory=list)
    num_preemptions: int = 0

    @property
    def all_token_ids(self) -> list[int]:
        return [*(self.prompt_token_ids or ()), *self.answer]


def found_ticket(transfer: bytes) -> bytes:
    return b"MRDF\x01" + transfer


def ticket_of(transfer: bytes, tokens: list[int]) -> bytes:
    return Ticket(transfer, Home("prefill", bytes(16)), tokens, Scope(model="m"), 1).seal(KEY)


def decode_params(transfer: bytes, tokens: list[int]) -> dict[str, Any]:
    ticket = base64.b64encode(ticket_of(transfer, tokens)).decode()
    return {"do_remote_prefill": True, "do_remote_decode": False, "meridian_ticket": ticket}


@dataclass
class FakeDoor:
    """A door at which a test plays the agent. Futures that it answers are as a Door's."""

    serving: bool = True
    cache: CacheTerms | None = None
    finds: list[tuple[Find, Future[Found]]] = field(default_factory=list)
    keeps: list[tuple[Keep, Future[None]]] = field(default_factory=list)
    accepts: list[tuple[Accept, Future[bytes]]] = field(default_factory=list)
    offers: list[tuple[Offer, Future[bytes]]] = field(default_factory=list)
    cancelled: list[bytes] = field(default_factory=list)
    withdrawn: list[bytes] = field(default_factory=list)
    declined: list[bytes] = field(default_factory=list)
    told: list[tuple[bytes, int, int]] = field(default_factory=list)

    def progress(self, transfer: bytes, layers: int, tokens: int = 0) -> None:
        self.told.append((transfer, layers, tokens))

    def write_ticket(self, offer: Offer) -> bytes:
        self._must_serve()
        return ticket_of(offer.transfer, list(offer.tokens))

    def offer_soon(self, offer: Offer) -> Future[bytes]:
        self._must_serve()
        self.offers.append((offer, Future()))
        return self.offers[-1][1]

    def accept_soon(self, accept: Accept) -> Future[bytes]:
        self._must_serve()
        self.accepts.append((accept, Future()))
        return self.accepts[-1][1]

    @property
    def features(self) -> frozenset[str]:
        return frozenset({"chunks", "cache"} if self.cache else {"chunks"})

    @property
    def cache_terms(self) -> CacheTerms:
        assert self.cache is not None
        return self.cache

    def find_soon(self, find: Find) -> Future[Found]:
        self._must_serve()
        self.finds.append((find, Future()))
        return self.finds[-1][1]

    def keep_soon(self, keep: Keep) -> Future[None]:
        self._must_serve()
        self.keeps.append((keep, Future()))
        return self.keeps[-1][1]

    def withdraw_offer_soon(self, transfer: bytes) -> Future[None]:
        return self._note(self.withdrawn, transfer)

    def cancel_accept_soon(self, transfer: bytes) -> Future[None]:
        return self._note(self.cancelled, transfer)

    def decline_ticket_soon(self, ticket: bytes) -> Future[None]:
        return self._note(self.declined, ticket)

    def close(self, timeout: float = 60.0) -> None:
        self.serving = False

    def _note(self, notes: list[bytes], what: bytes) -> Future[None]:
        self._must_serve()
        notes.append(what)
        return Future()

    def _must_serve(self) -> None:
        if not self.serving:
            raise DoorError("not_serving", "the agent is away")


@dataclass
class FakeRankDoor:
    """A rank's door: events come, in their order, whenever the test lets them."""

    lent: list[tuple[int, int, bool]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    naps: list[float] = field(default_factory=list)
    told: list[tuple[bytes, int, int]] = field(default_factory=list)

    def progress(self, transfer: bytes, layers: int, tokens: int = 0) -> None:
        self.told.append((transfer, layers, tokens))

    def lend_borrowed(self, address: int, size: int, *, more: bool = False) -> None:
        self.lent.append((address, size, more))

    def lend_gpu(self, memory: GPUMemory, size: int, *, more: bool = False) -> None:
        self.lent.append((memory.offset, size, more))

    def poll_events(self, timeout: float = 0.0) -> list[Event]:
        self.naps.append(timeout)
        taken, self.events = self.events, []
        return taken

    def close(self, timeout: float = 60.0) -> None:
        pass


class FakePool:
    """vLLM's blocks, as far as a connector holds them: a block is its number."""

    def __init__(self) -> None:
        self.blocks: Sequence[int] = range(1 << 30)
        self.free = 1 << 30
        self.held: Counter[int] = Counter()

    def get_num_free_blocks(self) -> int:
        return self.free

    def touch(self, blocks: Sequence[int]) -> None:
        self.held.update(blocks)

    def free_blocks(self, ordered_blocks: Sequence[int]) -> None:
        self.held.subtract(ordered_blocks)
        assert min(self.held.values()) >= 0, "a block is given up that is not held"


@dataclass
class _Computing:
    """A prompt that is promised to a decode server, and computed in some steps."""

    request: Request
    blocks: int = 0
    """How many it has."""
    end: int = 0
    """Up to which token the steps compute it."""


@dataclass
class _Moving:
    """A hand-off as the agent has it. While it is here the agent may touch its blocks."""

    transfer: bytes
    accepted: bool
    request: str
    answer: Future[Any] | None
    failed: bool = False
    blocks: tuple[int, ...] = ()
    """Those that the agent may read, of an offer, or write."""


@dataclass
class _Parked:
    """A request whose blocks vLLM will not free before it has heard of its end."""

    request: Request
    receiving: bool
    finished: bool = False
    failed: bool = False
    reports: int = 0


class World:
    """Runs requests at random, and asserts at every step what must never happen."""

    def __init__(self, seed: int, workers: int, cut: Cut = CUT) -> None:
        self.chance = random.Random(seed)
        self.now = 0.0
        self.cut = cut
        self.connector_scheduler = ConnectorScheduler(
            SETTINGS, cut, produces=True, consumes=True, by_layers=True, clock=lambda: self.now
        )
        self.door = FakeDoor(cache=CacheTerms(2 * BLOCK, 0.0))
        self.connector_scheduler.attach(self.door)
        self.pool = FakePool()
        self.connector_scheduler.hold_doubtful_in(self.pool)
        self.chunked = self.connector_scheduler.early_offers.hold_blocks_in(self.pool)
        assert self.chunked == cut.blocks_tell_whose
        self.rank_doors = [FakeRankDoor() for _ in range(workers)]
        self.workers = [ConnectorWorker(door) for door in self.rank_doors]
        self.late: list[tuple[FakeRankDoor, Event]] = []
        """Events that ranks have not heard yet."""
        self.unsaid: list[Callable[[], None]] = []
        """What control has not heard yet, in its order."""
        self.parked: dict[str, _Parked] = {}
        self.waiting: list[Request] = []
        self.computing: list[_Computing] = []
        """Prompts that are promised to a decode server."""
        self.agent: list[_Moving] = []
        self.doubted: list[_Moving] = []
        """RequestArgs of an agent that did not answer: only the end of the connection settles them."""
        self.ready: set[str] = set()
        """Requests whose cache is there."""
        self.seen = (0, 0, 0, 0)
        self.looking: list[tuple[Find, Future[Found]]] = []
        """Prefixes that the agent is asked for."""
        self.found: dict[bytes, Find] = {}
        """Tickets of what it found, until they are used or given back, and for whom."""
        self.losses: Counter[str] = Counter()
        """How often a request has lost its blocks."""
        self.mixed = False
        """Whether vLLM's cache may be of other weights than those that compute."""
        self.revisions = [""]
        """What tells the weights apart, from the first to those that compute; empty: not known yet."""
        self.left: set[str] = set()
        """Requests that begin anew, as nothing is known of what comes into their blocks."""
        self.next = 0
        self.outcomes = {
            "landed": 0,
            "failed": 0,
            "aborted": 0,
            "freed": 0,
            "ahead": 0,
            "chunked": 0,
            "lost": 0,
            "found": 0,
            "kept": 0,
            "changed": 0,
            "left": 0,
        }

    def run(self, steps: int) -> None:
        for _ in range(steps):
            hangs = self.chance.random() < 0.05  # the agent, for longer than any request waits
            self.now += 30.0 if hangs else self.chance.choice((0.001, 0.01, 1.0))
            self._clients()
            for _ in range(self.chance.randrange(4)):
                self._agent()
            self._weights()
            self._step()
        self._settle()

    def _settle(self) -> None:
        """Let everything come to its end: nothing may stay held."""
        for _ in range(200):
            self.now += 1.0
            self._agent()
            self._say(len(self.unsaid))
            self._step()
            if not (
                self.parked
                or self.waiting
                or self.agent
                or self.computing
                or +self.pool.held
                or self.connector_scheduler.early_offers.awaits_blocks
            ):
                break
        else:
            self._fence()
            self._say(len(self.unsaid))
            self._step()
        assert not self.parked, f"held for ever: {self.parked}"
        given_back = set(self.door.declined)
        assert not [t for t in self.found if t not in given_back], "a ticket was neither used nor given back"
        assert self.connector_scheduler.holds == 0
        assert not +self.pool.held, f"blocks are held for ever: {+self.pool.held}"

    # What clients do.

    def _clients(self) -> None:
        for _ in range(self.chance.randrange(3)):
            self._arrive()
        for parked in self.parked.values():
            if parked.receiving and not parked.finished and self.chance.random() < 0.1:
                parked.finished = True
                self.outcomes["aborted"] += 1
                assert self.connector_scheduler.finished(
                    parked.request, self._table(parked.request), complete=False
                ) == (
                    False,
                    None,
                )

    def _arrive(self) -> None:
        self.next += 1
        id_ = f"r{self.next}"
        tokens = [self.chance.randrange(500) for _ in range(self.chance.randrange(1, 40))]
        if self.chance.random() < 0.3:
            self.waiting.append(Request(id_, tokens, None, cache_salt=id_, answer=[1]))
            return
        if self.chance.random() < 0.2:
            promised = {"do_remote_decode": True, "meridian_promised": True}
            self.computing.append(_Computing(Request(id_, tokens, promised)))
            return
        if self.chance.random() < 0.5:
            request = Request(id_, tokens, {"do_remote_decode": True}, num_computed_tokens=len(tokens))
            kept, params = self.connector_scheduler.finished(
                request, self._table(request), complete=self.chance.random() < 0.9
            )
            assert kept == (params is not None)
            if kept:
                self.parked[id_] = _Parked(request, receiving=False, finished=True)
            return
        handed = [r for r in self.waiting if r.kv_transfer_params]
        transfer = self.chance.randbytes(16)
        params = decode_params(transfer, tokens)
        if handed and self.chance.random() < 0.1:
            twin = handed[-1]
            tokens, params = list(twin.prompt_token_ids or ()), dict(twin.kv_transfer_params or {})
        self.waiting.append(Request(id_, tokens, params))

    def _table(self, request: Request) -> tuple[list[int], ...]:
        """Return a request's blocks: others, each time that it has lost those it had."""
        count = -(-len(request.prompt_token_ids or ()) // BLOCK)
        first = int(request.request_id[1:]) * 10 + self.losses[request.request_id] * 1_000_000
        return (list(range(first, first + count)),)

    # What changes the model.

    def _weights(self) -> None:
        """Between two steps the weights become others, or vLLM gives up what it has of those before."""
        if self.chance.random() < 0.03:
            self._notice()
            self.connector_scheduler.weights_change("a test", empty=False)
            self.mixed = True
            self.revisions.append("")
            self.outcomes["changed"] += 1
        elif self.mixed and not self.parked and self.chance.random() < 0.5:
            self.connector_scheduler.cache_resets()
            for computing in self.computing:
                self._lose(computing)
            self._notice()
            self.mixed = False
            self.connector_scheduler.cache_was_reset(done=True)
            if self.chance.random() < 0.8:
                self.connector_scheduler.weights_named(f"version {len(self.revisions)}")

    def _check(self, scope: Scope) -> None:
        """What is shared is of the weights that compute, by a name that no others had."""
        assert not self.mixed, "something is shared that may be of other weights"
        self.revisions[-1] = self.revisions[-1] or f"{scope.revision}!"
        assert self.revisions[-1] == f"{scope.revision}!", "the same weights go by two names"
        assert self.revisions.count(self.revisions[-1]) == 1, "other weights go by a name that was used"

    # What the agent does.

    def _say(self, count: int) -> None:
        for say in self.unsaid[:count]:
            say()
        del self.unsaid[:count]

    def _happened(self, event: Event) -> None:
        self.unsaid.append(lambda: self.connector_scheduler.happened(event))

    def _agent(self) -> None:
        self._say(self.chance.randrange(len(self.unsaid) + 1))
        self._notice()
        if self.chance.random() < 0.03:
            self._fence()
            return
        if not self.door.serving:
            if self.chance.random() < 0.3:
                self.door.serving = True
                self._happened(Event(EventKind.SERVING))
            return
        if self.looking and self.chance.random() < 0.5:
            self._look(*self.looking.pop(self.chance.randrange(len(self.looking))))
        elif self.agent:
            self._go_on(self.chance.choice(self.agent))

    def _look(self, find: Find, answer: Future[Found]) -> None:
        """Answer what an engine asks for: there is something, or nothing, or no answer comes."""
        match self.chance.choice(("found", "found", "nothing", "refused", "silence")):
            case "found":
                tokens = len(list(find.tokens)) // BLOCK * BLOCK
                ticket = found_ticket(self.chance.randbytes(16))
                self.found[ticket] = find
                self.unsaid.append(lambda: answer.set_result(Found(tokens, ticket)))
            case "nothing":
                self.unsaid.append(lambda: answer.set_result(Found(reason="miss")))
            case "refused":
                self.unsaid.append(lambda: answer.set_exception(DoorError("busy", "too much at once")))

    def _notice(self) -> None:
        accepts, offers, finds, keeps = self.seen
        for accept, answer in self.door.accepts[accepts:]:
            self._check(accept.scope)
            transfer = accept.ticket[5:21]
            asked = self.found.pop(accept.ticket, None)
            if asked is None and accept.ticket.startswith(b"MRDF"):  # of an agent that is gone
                self.unsaid.append(_refuse(answer))
                continue
            if asked is not None:
                id_ = asked.scope.salt
                self.outcomes["found"] += 1
                assert accept.present_tokens >= asked.present_tokens, (
                    f"{id_} has blocks that no transfer fills"
                )
                assert self.parked[id_].receiving, f"{id_} takes what it does not wait for"
            else:
                id_ = next(
                    p.request.request_id
                    for p in self.parked.values()
                    if p.receiving and p.request.kv_transfer_params and _ticket(p.request) == accept.ticket
                )
            self.agent.append(_Moving(transfer, True, id_, answer, blocks=tuple(self._filled(accept))))
        for find, _ in self.door.finds[finds:]:
            self._check(find.scope)
        self.looking += self.door.finds[finds:]
        for keep, kept in self.door.keeps[keeps:]:
            self._check(keep.scope)
            self.outcomes["kept"] += 1
            self.agent.append(_Moving(keep.transfer, False, keep.scope.salt, kept))
        for offer, answer in self.door.offers[offers:]:
            self._check(offer.scope)
            held = [p.request for p in self.parked.values() if not p.receiving]
            computing = [c.request for c in self.computing]
            of = next(r for r in held + computing if r.prompt_token_ids is offer.tokens)
            blocks = tuple(offer.tables[0])
            self.agent.append(_Moving(offer.transfer, False, of.request_id, answer, blocks=blocks))
        self.seen = len(self.door.accepts), len(self.door.offers), len(self.door.finds), len(self.door.keeps)

    def _filled(self, accept: Accept) -> list[int]:
        """Return the blocks into which the agent may write."""
        return list(accept.tables[0])[accept.present_tokens // BLOCK if self.cut.blocks_tell_whose else 0 :]

    def _go_on(self, moving: _Moving) -> None:
        if moving.answer is not None:
            self._answer(moving)
        elif not moving.accepted:
            self._tell(moving, EventKind.FREED)
        elif moving.failed or self.chance.random() < 0.3:
            self._tell(moving, EventKind.FREED if moving.failed else EventKind.FAILED)
            moving.failed = True
        else:
            self.ready.add(moving.request)
            self._tell(moving, EventKind.READY)

    def _answer(self, moving: _Moving) -> None:
        answer, moving.answer = moving.answer, None
        assert answer is not None
        match self.chance.choice(("well", "well", "well", "refused", "no_answer")):
            case "well":
                self.unsaid.append(lambda: answer.set_result(moving.transfer))
            case "refused":
                self.agent.remove(moving)
                self.unsaid.append(lambda: answer.set_exception(DoorError("incompatible", "they do not fit")))
            case "no_answer":
                self.agent.remove(moving)
                self.doubted.append(moving)
                self.unsaid.append(lambda: answer.set_exception(DoorError("no_answer", "nothing is heard")))

    def _tell(self, moving: _Moving, kind: EventKind) -> None:
        problem = DoorError("gone", "the other agent is gone") if kind is not EventKind.READY else None
        event = Event(kind, moving.transfer, moving.accepted, problem)
        if kind is not EventKind.FAILED:
            self.agent.remove(moving)
            self.late += [(door, event) for door in self.rank_doors]
        self._happened(event)
        if self.chance.random() < 0.1:
            self._happened(event)  # once more

    def _fence(self) -> None:
        """The connection ends: the agent touches nothing any more."""
        self._notice()
        self.door.serving = False
        for moving in self.agent:
            if moving.answer is not None:
                self.unsaid.append(_lose(moving.answer))
                continue
            for kind in (EventKind.FAILED, EventKind.FREED) if moving.accepted else (EventKind.FREED,):
                self._happened(Event(kind, moving.transfer, moving.accepted, DoorError("gone", "it ended")))
        for moving in self.doubted:
            if not moving.accepted:
                self._happened(Event(EventKind.FREED, moving.transfer, False, DoorError("gone", "it ended")))
        for _, answer in self.looking:
            self.unsaid.append(_lose(answer))
        self.agent, self.doubted, self.looking, self.found = [], [], [], {}
        self._happened(Event(EventKind.FENCED))

    # What vLLM does.

    def _step(self) -> None:
        self._schedule()
        computed = self._compute()
        step = self.connector_scheduler.step()
        self.left |= set(step.left)
        told = {transfer for transfer, _ in step.computing}
        assert told <= computed, "workers hear of what the step does not compute"
        assert {t for t, _ in step.computing if self.connector_scheduler._handoffs.is_offered(t)} == {
            t for t in computed if self.connector_scheduler._handoffs.is_offered(t)
        }, "workers must hear of all that is offered while it is computed"
        assert len(set(step.landed + step.failed)) == len(step.landed + step.failed)
        finished: dict[str, int] = {}
        for worker, door in zip(self.workers, self.rank_doors, strict=True):
            self._work(worker, door, step, finished)
        self._finish()
        received = {id_ for id_ in finished if self.parked[id_].receiving and self._all_reported(id_)}
        self.connector_scheduler.reported(received)
        for id_ in [id_ for id_ in finished if self._all_reported(id_)]:
            self._end(id_)

    def _compute(self) -> set[bytes]:
        """Plan a chunk of some prompts, and return the offers of those that are planned."""
        planned: set[bytes] = set()
        for computing in self.computing:
            request, total = computing.request, len(computing.request.prompt_token_ids or ())
            id_ = request.request_id
            if 0 < computing.end < total and self.chance.random() < 0.2:
                self._lose(computing)
            if self.chance.random() < 0.2:
                continue
            new: tuple[list[int], ...] | None = None
            begins = computing.blocks == 0
            computing.end = min(total, computing.end + self.chance.randrange(1, 2 * BLOCK * 2))
            needed = -(-computing.end // BLOCK)
            if self.connector_scheduler.early_offers.wants_all_blocks(request) and self.chance.random() < 0.8:
                needed = -(-total // BLOCK)
            table = self._table(request)[0]
            if begins:
                self.connector_scheduler.allocated(request, (table[:needed],), 0)
            else:
                new = (table[computing.blocks : max(needed, computing.blocks)],)
            computing.blocks = max(needed, computing.blocks)
            self.connector_scheduler.early_offers.scheduled(id_, computing.end, new)
            if (ahead := self.connector_scheduler.early_offers._ahead.get(id_)) is not None:
                planned.add(ahead[0])
                self.outcomes["chunked"] += computing.end < total
        return planned

    def _lose(self, computing: _Computing) -> None:
        """vLLM takes a prompt's blocks; with its own scheduler the connector hears of it."""
        offered = computing.request.request_id in self.connector_scheduler.early_offers._ahead
        if self.chance.random() < 0.8:
            self.connector_scheduler.early_offers.lost_blocks(computing.request.request_id)
        self._notice()
        self.outcomes["lost"] += offered
        self.losses[computing.request.request_id] += 1
        computing.blocks = computing.end = 0

    def _finish(self) -> None:
        """The step is over, and with it the requests that it computed. The agent did not wait for that."""
        for _ in range(self.chance.randrange(4)):
            self._agent()
        self._notice()
        for computing in list(self.computing):
            request, total = computing.request, len(computing.request.prompt_token_ids or ())
            request.num_computed_tokens = computing.end
            aborted = self.chance.random() < 0.05
            if computing.end < total and not aborted:
                continue
            self.computing.remove(computing)
            kept, params = self.connector_scheduler.finished(
                request, self._table(request), complete=not aborted and self.chance.random() < 0.9
            )
            self.outcomes["ahead"] += params is not None
            assert params is None or not self.mixed, "a prompt of two weights is handed off"
            if kept:
                self.parked[request.request_id] = _Parked(request, receiving=False, finished=True)
                continue
            self._assert_untouched(request)
        self._notice()
        for moving in self.agent + self.doubted:
            if moving.blocks and moving.blocks[0] // 1_000_000 < self.losses[moving.request]:
                assert all(self.pool.held[block] for block in moving.blocks), (
                    "free, and the agent may read it"
                )

    def _assert_untouched(self, request: Request) -> None:
        """Nothing that the agent may touch of a request is free."""
        free = {block for block in self._table(request)[0] if not self.pool.held[block]}
        touched = [
            m
            for m in (*self.agent, *self.doubted)
            if m.request == request.request_id and (not m.blocks or free.intersection(m.blocks))
        ]
        assert not touched, f"blocks of {request.request_id} are free, the agent may touch them: {touched}"

    def _schedule(self) -> None:
        for request in list(self.waiting):
            computed = self.chance.choice((0, 0, BLOCK)) if len(request.prompt_token_ids or ()) > BLOCK else 0
            count, parks = self.connector_scheduler.matched_tokens(request, computed)
            assert (count, parks) == self.connector_scheduler.matched_tokens(request, computed), (
                "asking changed something"
            )
            if count is None:
                continue
            assert parks == (count > 0)
            self.waiting.remove(request)
            if parks:
                self.parked[request.request_id] = _Parked(request, receiving=True)
            self.connector_scheduler.allocated(request, self._table(request), count)
            self.connector_scheduler.allocated(request, self._table(request), 0)
            if not parks and request.kv_transfer_params is None:
                self._complete(request)

    def _work(
        self, worker: ConnectorWorker, door: FakeRankDoor, step: Step, finished: dict[str, int]
    ) -> None:
        worker.told(step)
        for late in [late for late in self.late if late[0] is door and self.chance.random() < 0.5]:
            self.late.remove(late)
            door.events.append(late[1])
        report = worker.report()
        invalid = worker.take_invalid_blocks()
        for id_ in report.sent | report.received:
            parked = self.parked.get(id_)
            assert parked is not None, f"{id_} is reported, and vLLM does not wait for it"
            assert parked.receiving == (id_ in report.received)
            parked.reports += 1
            parked.failed |= bool(id_ in report.failed or invalid & set(self._table(parked.request)[0]))
            finished[id_] = parked.reports
        told_by_request = report.failed - self.left
        assert not (told_by_request if self.cut.blocks_tell_whose else invalid), (
            "vLLM cannot tell whose it is"
        )

    def _all_reported(self, id_: str) -> bool:
        assert self.parked[id_].reports <= len(self.workers), f"{id_} is reported too often"
        return self.parked[id_].reports == len(self.workers)

    def _end(self, id_: str) -> None:
        parked = self.parked.pop(id_)
        self._assert_untouched(parked.request)
        if id_ in self.left:
            self.left.remove(id_)
            self.outcomes["left"] += 1
            self.losses[id_] += 1  # it gets other blocks
            parked.failed = True
        if not parked.receiving:
            self.outcomes["freed"] += 1
            return
        assert parked.failed or id_ in self.ready, f"{id_} goes on with a cache that is not there"
        self.outcomes["failed" if parked.failed else "landed"] += 1
        if not parked.finished:
            assert self.connector_scheduler.matched_tokens(parked.request, 0) == (0, False), (
                "its ticket is used"
            )
            self._complete(parked.request)

    def _complete(self, request: Request) -> None:
        """A request has computed what was missing, and comes to its end."""
        if request.kv_transfer_params is None:
            request.num_computed_tokens = len(request.prompt_token_ids or ())
        kept, params = self.connector_scheduler.finished(request, self._table(request), complete=True)
        assert params is None
        assert not kept or request.kv_transfer_params is None
        if kept:
            self.parked[request.request_id] = _Parked(request, receiving=False, finished=True)


def _lose(answer: Future[Any]) -> Callable[[], None]:
    return lambda: answer.set_exception(DoorError("lost", "the connection has ended"))


def _refuse(answer: Future[Any]) -> Callable[[], None]:
    return lambda: answer.set_exception(DoorError("unknown", "no such ticket"))


def _ticket(request: Request) -> bytes:
    assert request.kv_transfer_params is not None
    return base64.b64decode(request.kv_transfer_params["meridian_ticket"])
