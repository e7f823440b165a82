"""What the connector's scheduler asks of the agent, and what it tells vLLM."""

from __future__ import annotations

import base64
from types import SimpleNamespace
from typing import Any

import pytest
from vllmworld import BLOCK, CUT, SETTINGS, FakeDoor, Request, decode_params, ticket_of

from meridian.door import DoorError, Event, EventKind, Layer, Publication, Scope
from meridian.vllm.cut import Cut
from meridian.vllm.handoffs import Step, Watch
from meridian.vllm.scheduler import ConnectorScheduler

TRANSFER = bytes(range(1, 17))
TOKENS = list(range(10))
BLOCKS = ([7, 8, 9],)


class Scheduler(ConnectorScheduler):
    """A connector's scheduler with its door and its clock at hand."""

    def __init__(
        self, *, cut: Cut = CUT, produces: bool = True, consumes: bool = True, by_layers: bool = False
    ) -> None:
        self.now = 0.0
        super().__init__(
            SETTINGS,
            cut,
            produces=produces,
            consumes=consumes,
            by_layers=by_layers,
            clock=lambda: self.now,
        )
        self.door = FakeDoor()
        self.attach(self.door)

    def park(self, request: Request) -> None:
        """Let a request with a ticket wait for its cache, which the agent has begun to fetch."""
        assert self.matched_tokens(request, 0) == (len(TOKENS), True)
        self.allocated(request, BLOCKS, len(TOKENS))
        self.step()
        self.door.accepts[-1][1].set_result(TRANSFER)

    def tell(self, kind: EventKind, accepted: bool = True, code: str = "") -> None:
        self.happened(Event(kind, TRANSFER, accepted, DoorError(code, "so it is") if code else None))


def decode_request(**more: Any) -> Request:
    return Request("d", TOKENS, decode_params(TRANSFER, TOKENS) | more)


def prefill_request(**more: Any) -> Request:
    return Request("p", TOKENS, {"do_remote_decode": True} | more, num_computed_tokens=len(TOKENS))


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler()


def test_an_accept_says_what_is_there_and_where_the_rest_belongs(scheduler: Scheduler) -> None:
    request = decode_request(meridian_leg=base64.b64encode(b"sealed").decode())
    request.cache_salt, request.lora_request = "salt", SimpleNamespace(lora_name="adapter", lora_int_id=1)
    position = SimpleNamespace(offset=2, length=3)
    request.mm_features = [SimpleNamespace(identifier="image", mm_position=position)]
    assert scheduler.matched_tokens(request, BLOCK) == (len(TOKENS) - BLOCK, True)
    scheduler.allocated(request, BLOCKS, len(TOKENS) - BLOCK)
    accept, _ = scheduler.door.accepts[0]
    assert accept.ticket == ticket_of(TRANSFER, TOKENS)
    assert list(accept.tokens) == TOKENS and accept.tables == [[7, 8, 9]] and accept.present_tokens == BLOCK
    assert accept.scope == Scope(adapter="adapter", media="2+3 image", salt="salt")
    assert accept.leg == b"sealed" and accept.deadline == SETTINGS.deadline and not accept.push
    assert scheduler.step().watches["d"].blocks == (8, 9), "the block that is there is not filled"


def test_a_request_is_asked_for_once(scheduler: Scheduler) -> None:
    request = decode_request()
    scheduler.park(request)
    scheduler.tell(EventKind.FAILED, code="digest")
    assert scheduler.step().failed == (), "the blocks are not vLLM's before Freed"
    scheduler.tell(EventKind.FREED)
    scheduler.tell(EventKind.FREED)
    assert scheduler.step().failed == ("d",) and scheduler.step().failed == ()
    scheduler.reported(["d"])
    assert scheduler.matched_tokens(request, 0) == (0, False)
    scheduler.allocated(request, BLOCKS, 0)
    assert len(scheduler.door.accepts) == 1 and len(scheduler.door.declined) == 1 and scheduler.holds == 0


def test_with_too_few_blocks_nothing_is_accepted(scheduler: Scheduler) -> None:
    request = decode_request()
    scheduler.matched_tokens(request, 0)
    scheduler.allocated(request, ([7],), len(TOKENS))
    assert scheduler.door.accepts == [] and scheduler.step().failed == ("d",)


def test_twins_share_one_hand_off(scheduler: Scheduler) -> None:
    scheduler.park(decode_request())
    twin = Request("twin", TOKENS, decode_params(TRANSFER, TOKENS))
    assert scheduler.matched_tokens(twin, 0) == (None, False)
    scheduler.tell(EventKind.READY)
    assert scheduler.matched_tokens(twin, 0) == (0, False), "what is there now is in the prefix cache"
    scheduler.allocated(twin, BLOCKS, 0)
    assert scheduler.door.declined == []


def test_a_ticket_that_will_not_be_used_is_given_back(scheduler: Scheduler) -> None:
    request = decode_request(meridian_unused=True)
    assert scheduler.matched_tokens(request, 0) == (0, False)
    scheduler.allocated(request, BLOCKS, 0)
    assert len(scheduler.door.declined) == 1 and scheduler.door.accepts == []
    assert scheduler.finished(request, BLOCKS, complete=True) == (False, None)


def test_a_request_that_has_its_prompt_gives_the_ticket_back(scheduler: Scheduler) -> None:
    request = decode_request()
    assert scheduler.matched_tokens(request, len(TOKENS)) == (0, False)
    scheduler.allocated(request, BLOCKS, 0)
    scheduler.allocated(request, BLOCKS, 0)
    assert scheduler.matched_tokens(request, 0) == (0, False), "it was preempted, and its ticket is gone"
    assert scheduler.finished(request, BLOCKS, complete=True) == (False, None)
    assert scheduler.door.declined == [ticket_of(TRANSFER, TOKENS)]


def test_a_request_that_ends_before_its_turn_gives_the_ticket_back(scheduler: Scheduler) -> None:
    assert scheduler.finished(decode_request(), ([],), complete=False) == (False, None)
    assert scheduler.door.declined == [ticket_of(TRANSFER, TOKENS)]


def test_an_abort_cancels_and_waits_for_the_agent(scheduler: Scheduler) -> None:
    request = decode_request()
    scheduler.park(request)
    assert scheduler.finished(request, BLOCKS, complete=False) == (False, None)
    assert scheduler.door.cancelled == [TRANSFER]
    scheduler.tell(EventKind.FAILED, code="cancelled")
    assert scheduler.step().failed == ()
    scheduler.tell(EventKind.FREED, code="cancelled")
    assert scheduler.step().failed == ("d",)
    assert scheduler.counters.take() == {"abandoned": 1}


def test_an_abort_before_the_answer_is_told_after_it(scheduler: Scheduler) -> None:
    request = decode_request()
    scheduler.matched_tokens(request, 0)
    scheduler.allocated(request, BLOCKS, len(TOKENS))
    scheduler.finished(request, BLOCKS, complete=False)
    assert scheduler.door.cancelled == []
    scheduler.door.accepts[0][1].set_result(TRANSFER)
    scheduler.step()
    assert scheduler.door.cancelled == [TRANSFER]


def test_what_takes_too_long_is_cancelled_once(scheduler: Scheduler) -> None:
    scheduler.park(decode_request())
    scheduler.step()
    scheduler.now = SETTINGS.deadline + 1
    scheduler.step()
    assert scheduler.door.cancelled == [], "the agent loses patience first"
    scheduler.now += 2
    scheduler.step()
    scheduler.step()
    assert scheduler.door.cancelled == [TRANSFER]


@pytest.mark.parametrize("code", ["incompatible", "used", "lost"])
def test_a_refused_accept_fails_at_once(scheduler: Scheduler, code: str) -> None:
    scheduler.matched_tokens(decode_request(), 0)
    scheduler.allocated(decode_request(), BLOCKS, len(TOKENS))
    scheduler.door.accepts[0][1].set_exception(DoorError(code, "no"))
    assert scheduler.step().failed == ("d",)
    assert scheduler.door.declined == [], "the ticket may be another's, or in use"


def test_a_ticket_is_given_back_when_its_hand_off_failed(scheduler: Scheduler) -> None:
    scheduler.park(decode_request())
    scheduler.tell(EventKind.FAILED)
    scheduler.step()
    assert scheduler.door.declined == [], "its blocks are not free yet"
    scheduler.tell(EventKind.FREED)
    scheduler.step()
    assert scheduler.door.declined == [ticket_of(TRANSFER, TOKENS)]


def test_a_ticket_that_was_used_is_not_given_back(scheduler: Scheduler) -> None:
    scheduler.park(decode_request())
    scheduler.tell(EventKind.READY)
    scheduler.step()
    scheduler.reported(["d"])
    assert scheduler.door.declined == []


def test_events_may_be_heard_before_the_answer_they_follow(scheduler: Scheduler) -> None:
    scheduler.matched_tokens(decode_request(), 0)
    scheduler.allocated(decode_request(), BLOCKS, len(TOKENS))
    scheduler.tell(EventKind.READY)
    scheduler.door.accepts[0][1].set_result(TRANSFER)
    assert scheduler.step().landed == ("d",)
    scheduler.reported(["d"])
    assert scheduler.holds == 0


def test_a_failure_before_its_answer_waits_for_the_blocks(scheduler: Scheduler) -> None:
    scheduler.matched_tokens(decode_request(), 0)
    scheduler.allocated(decode_request(), BLOCKS, len(TOKENS))
    scheduler.tell(EventKind.FAILED)
    scheduler.door.accepts[0][1].set_result(TRANSFER)
    assert scheduler.step().failed == (), "the agent may still write into the blocks"
    scheduler.tell(EventKind.FREED)
    assert scheduler.step().failed == ("d",)


def test_a_request_that_wants_its_prompts_logprobs_computes_its_prompt(scheduler: Scheduler) -> None:
    request = decode_request()
    request.skip_reading_prefix_cache = True
    assert scheduler.matched_tokens(request, 0) == (0, False)
    scheduler.allocated(request, BLOCKS, 0)
    assert len(scheduler.door.declined) == 1, "the prefill server keeps blocks that are not fetched"


def test_workers_are_told_when_nothing_is_computed(scheduler: Scheduler) -> None:
    assert scheduler.step(idle=True).idle and not scheduler.step().idle


def test_an_accept_without_an_answer_fails_with_the_connection(scheduler: Scheduler) -> None:
    scheduler.matched_tokens(decode_request(), 0)
    scheduler.allocated(decode_request(), BLOCKS, len(TOKENS))
    scheduler.door.accepts[0][1].set_exception(DoorError("no_answer", "nothing is heard"))
    scheduler.tell(EventKind.READY)
    assert scheduler.step() == Step(watches={"d": Watch(TRANSFER, (7, 8, 9))})
    scheduler.happened(Event(EventKind.FENCED))
    assert scheduler.step().failed == ("d",)


def test_an_older_connection_that_ended_is_not_this_one(scheduler: Scheduler) -> None:
    scheduler.matched_tokens(decode_request(), 0)
    scheduler.happened(Event(EventKind.FENCED))
    scheduler.happened(Event(EventKind.SERVING))
    scheduler.allocated(decode_request(), BLOCKS, len(TOKENS))
    assert scheduler.step().failed == ()


def test_an_agent_that_is_lost_in_between_is_a_failed_load(scheduler: Scheduler) -> None:
    assert scheduler.matched_tokens(decode_request(), 0) == (len(TOKENS), True)
    scheduler.door.serving = False
    scheduler.allocated(decode_request(), BLOCKS, len(TOKENS))
    assert scheduler.step().failed == ("d",), "vLLM waits for it"


def test_without_an_agent_prompts_are_computed_here(scheduler: Scheduler) -> None:
    scheduler.door.serving = False
    request = decode_request()
    assert scheduler.matched_tokens(request, 0) == (0, False)
    scheduler.allocated(request, BLOCKS, 0)
    assert scheduler.finished(prefill_request(), BLOCKS, complete=True) == (False, None)
    assert scheduler.counters.take() == {"declined": 1} and scheduler.holds == 0


@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        {"do_remote_prefill": True},
        {"meridian_ticket": "!"},
        {"meridian_ticket": "AAAA"},
        {"meridian_ticket": 7},
        "a text",
        ["a list"],
        7,
    ],
)
def test_what_is_no_ticket_is_not_asked_for(scheduler: Scheduler, params: Any) -> None:
    request = Request("d", TOKENS, params)
    assert scheduler.matched_tokens(request, 0) == (0, False)
    scheduler.allocated(request, BLOCKS, 0)
    assert scheduler.finished(request, BLOCKS, complete=True) == (False, None)
    assert scheduler.door.accepts == [] and scheduler.door.declined == []


def test_embeddings_say_nothing_that_a_ticket_could_be_held_against(scheduler: Scheduler) -> None:
    request = decode_request()
    request.prompt_embeds = object()
    assert scheduler.matched_tokens(request, 0) == (0, False)


def test_roles_are_kept() -> None:
    assert Scheduler(consumes=False).matched_tokens(decode_request(), 0) == (0, False)
    assert Scheduler(produces=False).finished(prefill_request(), BLOCKS, complete=True) == (False, None)


def test_an_offer_is_answered_with_its_ticket(scheduler: Scheduler) -> None:
    leg = base64.b64encode(b"sealed").decode()
    request = prefill_request(meridian_transfer=TRANSFER.hex(), meridian_leg=leg)
    kept, params = scheduler.finished(request, ([7, 8, 9, 10],), complete=True)
    assert kept and params == decode_params(TRANSFER, TOKENS)
    offer, answer = scheduler.door.offers[0]
    assert offer.transfer == TRANSFER and offer.tables == [[7, 8, 9]] and offer.layers == 2
    assert offer.keep == SETTINGS.keep and offer.leg == b"sealed"
    answer.set_result(b"the agent's own")
    assert scheduler.step().freed == ()
    scheduler.tell(EventKind.FREED, accepted=False)
    scheduler.tell(EventKind.FREED, accepted=False)
    assert scheduler.step().freed == ("p",) and scheduler.step().freed == ()


def test_offers_have_ids_of_their_own(scheduler: Scheduler) -> None:
    scheduler.finished(prefill_request(), BLOCKS, complete=True)
    scheduler.finished(prefill_request(), BLOCKS, complete=True)
    assert len({offer.transfer for offer, _ in scheduler.door.offers}) == 2


def test_the_same_transfer_is_not_offered_twice(scheduler: Scheduler) -> None:
    assert scheduler.finished(prefill_request(meridian_transfer=TRANSFER.hex()), BLOCKS, complete=True)[0]
    assert scheduler.finished(prefill_request(meridian_transfer=TRANSFER.hex()), BLOCKS, complete=True) == (
        False,
        None,
    )


@pytest.mark.parametrize("transfer", ["xyz", "00" * 16, "01", 7])
def test_an_unreadable_transfer_is_not_offered(scheduler: Scheduler, transfer: object) -> None:
    assert scheduler.finished(prefill_request(meridian_transfer=transfer), BLOCKS, complete=True) == (
        False,
        None,
    )


def test_what_is_not_computed_is_not_offered(scheduler: Scheduler) -> None:
    request = prefill_request()
    assert scheduler.finished(request, BLOCKS, complete=False) == (False, None)
    request.num_computed_tokens -= 1
    assert scheduler.finished(request, BLOCKS, complete=True) == (False, None)


@pytest.mark.parametrize(("code", "freed"), [("leg", ("p",)), ("lost", ("p",)), ("no_answer", ())])
def test_a_declined_offer_frees_its_blocks(scheduler: Scheduler, code: str, freed: tuple[str, ...]) -> None:
    scheduler.finished(prefill_request(meridian_transfer=TRANSFER.hex()), BLOCKS, complete=True)
    scheduler.door.offers[0][1].set_exception(DoorError(code, "no"))
    assert scheduler.step().freed == freed
    scheduler.tell(EventKind.FREED, accepted=False)
    assert scheduler.step().freed == (() if freed else ("p",))


def test_an_offer_that_the_agent_forgets_is_withdrawn(scheduler: Scheduler) -> None:
    scheduler.finished(prefill_request(meridian_transfer=TRANSFER.hex()), BLOCKS, complete=True)
    scheduler.now = SETTINGS.keep + SETTINGS.deadline + 3
    scheduler.step()
    scheduler.step()
    assert scheduler.door.withdrawn == [TRANSFER]


PROMISED = {"meridian_transfer": TRANSFER.hex(), "meridian_promised": True}


def test_a_promised_prompt_is_offered_with_its_last_step() -> None:
    scheduler, request = Scheduler(by_layers=True), prefill_request(**PROMISED)
    assert not scheduler.early_offers
    scheduler.allocated(request, ([7],), 0)
    assert scheduler.early_offers
    scheduler.early_offers.scheduled("p", 4, None)
    assert scheduler.step().computing == () and not scheduler.door.offers, (
        "a step that does not end the prompt"
    )
    scheduler.early_offers.scheduled("p", 10, ([8, 9],))
    offer, answer = scheduler.door.offers[0]
    assert offer.transfer == TRANSFER and offer.tables == [[7, 8, 9]] and offer.layers == 0
    assert not scheduler.early_offers
    assert scheduler.step().computing == ((TRANSFER, 0),)
    assert scheduler.step().computing == ()
    answer.set_result(b"the agent's own")
    assert scheduler.finished(request, BLOCKS, complete=True) == (True, decode_params(TRANSFER, TOKENS))
    assert (
        scheduler.door.told == [(TRANSFER, 2, 0)]
        and len(scheduler.door.offers) == 1
        and scheduler.counters.ahead == 1
    )
    scheduler.tell(EventKind.FREED, accepted=False)
    assert scheduler.step().freed == ("p",) and scheduler.holds == 0


def test_blocks_of_a_prompt_that_was_taken_before_its_end_are_not_kept() -> None:
    scheduler, request = Scheduler(by_layers=True), prefill_request(**PROMISED)
    scheduler.allocated(request, BLOCKS, 0)
    scheduler.early_offers.scheduled("p", 10, None)
    scheduler.tell(EventKind.FREED, accepted=False)
    assert scheduler.step().freed == (), "vLLM has not given them out of its hands"
    assert scheduler.finished(request, BLOCKS, complete=True) == (False, decode_params(TRANSFER, TOKENS))
    assert scheduler.step().freed == ()


def test_a_promised_prompt_whose_offer_failed_is_not_answered_with_a_ticket() -> None:
    scheduler, request = Scheduler(by_layers=True), prefill_request(**PROMISED)
    scheduler.allocated(request, BLOCKS, 0)
    scheduler.early_offers.scheduled("p", 10, None)
    scheduler.tell(EventKind.FREED, accepted=False, code="gone")
    assert scheduler.finished(request, BLOCKS, complete=True) == (False, None)


def test_what_is_promised_may_take_longer(scheduler: Scheduler) -> None:
    promise = b"MRDP\x01" + TRANSFER + bytes(16) + b"\x04home" + bytes(32)
    request = decode_request(meridian_ticket=base64.b64encode(promise).decode())
    scheduler.matched_tokens(request, 0)
    scheduler.allocated(request, BLOCKS, len(TOKENS))
    accept, _ = scheduler.door.accepts[0]
    assert accept.ticket == promise and accept.deadline == SETTINGS.deadline + SETTINGS.keep


def test_a_promised_prompt_that_is_aborted_is_withdrawn_and_its_blocks_are_kept() -> None:
    scheduler, request = Scheduler(by_layers=True), prefill_request(**PROMISED)
    scheduler.allocated(request, BLOCKS, 0)
    scheduler.early_offers.scheduled("p", 10, None)
    assert scheduler.finished(request, BLOCKS, complete=False) == (True, None)
    assert scheduler.door.withdrawn == [TRANSFER] and scheduler.door.told == []
    scheduler.tell(EventKind.FREED, accepted=False, code="withdrawn")
    assert scheduler.step().freed == ("p",)


def test_a_promised_prompt_that_is_preempted_begins_again() -> None:
    scheduler, request = Scheduler(by_layers=True), prefill_request(**PROMISED)
    scheduler.allocated(request, ([1],), 0)
    scheduler.early_offers.scheduled("p", 4, None)
    scheduler.allocated(request, BLOCKS, 0)
    scheduler.early_offers.scheduled("p", 10, None)
    assert scheduler.door.offers[0][0].tables == [[7, 8, 9]]


@pytest.mark.parametrize(
    ("by_layers", "params", "max_tokens"),
    [(False, PROMISED, 1), (True, {}, 1), (True, PROMISED, 2)],
    ids=["vLLM plans ahead", "no decode engine waits", "it goes on"],
)
def test_other_prompts_are_offered_at_their_end(
    by_layers: bool, params: dict[str, Any], max_tokens: int
) -> None:
    scheduler, request = Scheduler(by_layers=by_layers), prefill_request(**params)
    request.max_tokens = max_tokens
    scheduler.allocated(request, BLOCKS, 0)
    scheduler.early_offers.scheduled("p", 10, None)
    assert not scheduler.door.offers
    assert scheduler.finished(request, BLOCKS, complete=True)[0]
    assert scheduler.door.offers[0][0].layers == 2


def test_a_promised_prompt_is_offered_at_its_end_if_the_agent_was_away_before() -> None:
    scheduler, request = Scheduler(by_layers=True), prefill_request(**PROMISED)
    scheduler.door.serving = False
    scheduler.allocated(request, BLOCKS, 0)
    scheduler.early_offers.scheduled("p", 10, None)
    scheduler.door.serving = True
    assert scheduler.finished(request, BLOCKS, complete=True)[0]
    assert scheduler.door.offers[0][0].layers == 2


def test_a_window_whose_edge_vllm_gave_up_is_not_handed_off() -> None:
    publication = Publication("fp32", [Layer(2, 8, window_tokens=8), Layer(2, 8)], BLOCK, 100)
    scheduler = Scheduler(cut=Cut(publication, (1, 0)))
    lost, kept = list(range(11)), list(range(12))
    blocks = ([1, 2, 3], [0, 5, 6])
    request = Request("p", lost, {"do_remote_decode": True}, num_computed_tokens=11)
    assert scheduler.finished(request, blocks, complete=True) == (False, None)
    assert scheduler.matched_tokens(Request("d", lost, decode_params(TRANSFER, lost)), 0) == (0, False)
    request = Request("p", kept, {"do_remote_decode": True}, num_computed_tokens=12)
    assert scheduler.finished(request, blocks, complete=True)[0]
    assert scheduler.door.offers[0][0].tables == [[0, 5, 6], [1, 2, 3]], "tables are in the order of layers"


def test_time_and_tokens_are_counted(scheduler: Scheduler) -> None:
    scheduler.park(decode_request())
    scheduler.now = 0.25
    scheduler.tell(EventKind.READY)
    assert scheduler.step().landed == ("d",)
    scheduler.reported(["d"])
    assert scheduler.counters.take() == {"ready_seconds": [0.25], "ready_tokens": [len(TOKENS)]}
    assert scheduler.counters.take() == {}
