"""What the scheduler's half asks of the agent, and what it tells vLLM."""

from __future__ import annotations

import base64
from types import SimpleNamespace
from typing import Any

import pytest
from vllmworld import BLOCK, CUT, SETTINGS, FakeDoor, Request, decode_params, ticket_of

from meridian.door import DoorError, Event, EventKind, Layer, Publication, Scope
from meridian.vllm.cut import Cut
from meridian.vllm.handoffs import Step, Watch
from meridian.vllm.scheduler import SchedulerHalf

TRANSFER = bytes(range(1, 17))
TOKENS = list(range(10))
BLOCKS = ([7, 8, 9],)


class Half(SchedulerHalf):
    """A half with its door and its clock at hand."""

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
def half() -> Half:
    return Half()


def test_an_accept_says_what_is_there_and_where_the_rest_belongs(half: Half) -> None:
    request = decode_request(meridian_leg=base64.b64encode(b"sealed").decode())
    request.cache_salt, request.lora_request = "salt", SimpleNamespace(lora_name="adapter")
    position = SimpleNamespace(offset=2, length=3)
    request.mm_features = [SimpleNamespace(identifier="image", mm_position=position)]
    assert half.matched_tokens(request, BLOCK) == (len(TOKENS) - BLOCK, True)
    half.allocated(request, BLOCKS, len(TOKENS) - BLOCK)
    accept, _ = half.door.accepts[0]
    assert accept.ticket == ticket_of(TRANSFER, TOKENS)
    assert list(accept.tokens) == TOKENS and accept.tables == [[7, 8, 9]] and accept.present_tokens == BLOCK
    assert accept.scope == Scope(adapter="adapter", media="2+3 image", salt="salt")
    assert accept.leg == b"sealed" and accept.deadline == SETTINGS.deadline and not accept.push
    assert half.step().watches["d"].blocks == (8, 9), "the block that is there is not filled"


def test_a_request_is_asked_for_once(half: Half) -> None:
    request = decode_request()
    half.park(request)
    half.tell(EventKind.FAILED, code="digest")
    assert half.step().failed == (), "the blocks are not vLLM's before Freed"
    half.tell(EventKind.FREED)
    half.tell(EventKind.FREED)
    assert half.step().failed == ("d",) and half.step().failed == ()
    half.reported(["d"])
    assert half.matched_tokens(request, 0) == (0, False)
    half.allocated(request, BLOCKS, 0)
    assert len(half.door.accepts) == 1 and len(half.door.declined) == 1 and half.holds == 0


def test_with_too_few_blocks_nothing_is_accepted(half: Half) -> None:
    request = decode_request()
    half.matched_tokens(request, 0)
    half.allocated(request, ([7],), len(TOKENS))
    assert half.door.accepts == [] and half.step().failed == ("d",)


def test_twins_share_one_hand_off(half: Half) -> None:
    half.park(decode_request())
    twin = Request("twin", TOKENS, decode_params(TRANSFER, TOKENS))
    assert half.matched_tokens(twin, 0) == (None, False)
    half.tell(EventKind.READY)
    assert half.matched_tokens(twin, 0) == (0, False), "what is there now is in the prefix cache"
    half.allocated(twin, BLOCKS, 0)
    assert half.door.declined == []


def test_a_ticket_that_nobody_will_use_is_given_back(half: Half) -> None:
    request = decode_request(meridian_unused=True)
    assert half.matched_tokens(request, 0) == (0, False)
    half.allocated(request, BLOCKS, 0)
    assert len(half.door.declined) == 1 and half.door.accepts == []
    assert half.finished(request, BLOCKS, complete=True) == (False, None)


def test_a_request_that_has_its_prompt_gives_the_ticket_back(half: Half) -> None:
    request = decode_request()
    assert half.matched_tokens(request, len(TOKENS)) == (0, False)
    half.allocated(request, BLOCKS, 0)
    half.allocated(request, BLOCKS, 0)
    assert half.matched_tokens(request, 0) == (0, False), "it was preempted, and its ticket is gone"
    assert half.finished(request, BLOCKS, complete=True) == (False, None)
    assert half.door.declined == [ticket_of(TRANSFER, TOKENS)]


def test_a_request_that_ends_before_its_turn_gives_the_ticket_back(half: Half) -> None:
    assert half.finished(decode_request(), ([],), complete=False) == (False, None)
    assert half.door.declined == [ticket_of(TRANSFER, TOKENS)]


def test_an_abort_cancels_and_waits_for_the_agent(half: Half) -> None:
    request = decode_request()
    half.park(request)
    assert half.finished(request, BLOCKS, complete=False) == (False, None)
    assert half.door.cancelled == [TRANSFER]
    half.tell(EventKind.FAILED, code="cancelled")
    assert half.step().failed == ()
    half.tell(EventKind.FREED, code="cancelled")
    assert half.step().failed == ("d",)
    assert half.counters.take() == {"abandoned": 1}


def test_an_abort_before_the_answer_is_told_after_it(half: Half) -> None:
    request = decode_request()
    half.matched_tokens(request, 0)
    half.allocated(request, BLOCKS, len(TOKENS))
    half.finished(request, BLOCKS, complete=False)
    assert half.door.cancelled == []
    half.door.accepts[0][1].set_result(TRANSFER)
    half.step()
    assert half.door.cancelled == [TRANSFER]


def test_what_takes_too_long_is_cancelled_once(half: Half) -> None:
    half.park(decode_request())
    half.step()
    half.now = SETTINGS.deadline + 1
    half.step()
    assert half.door.cancelled == [], "the agent loses patience first"
    half.now += 2
    half.step()
    half.step()
    assert half.door.cancelled == [TRANSFER]


@pytest.mark.parametrize("code", ["incompatible", "used", "lost"])
def test_a_refused_accept_fails_at_once(half: Half, code: str) -> None:
    half.matched_tokens(decode_request(), 0)
    half.allocated(decode_request(), BLOCKS, len(TOKENS))
    half.door.accepts[0][1].set_exception(DoorError(code, "no"))
    assert half.step().failed == ("d",)
    assert half.door.declined == [], "the ticket may be another's, or in use"


def test_a_ticket_is_given_back_when_its_hand_off_failed(half: Half) -> None:
    half.park(decode_request())
    half.tell(EventKind.FAILED)
    half.step()
    assert half.door.declined == [], "its blocks are not free yet"
    half.tell(EventKind.FREED)
    half.step()
    assert half.door.declined == [ticket_of(TRANSFER, TOKENS)]


def test_a_ticket_that_was_used_is_not_given_back(half: Half) -> None:
    half.park(decode_request())
    half.tell(EventKind.READY)
    half.step()
    half.reported(["d"])
    assert half.door.declined == []


def test_events_may_be_heard_before_the_answer_they_follow(half: Half) -> None:
    half.matched_tokens(decode_request(), 0)
    half.allocated(decode_request(), BLOCKS, len(TOKENS))
    half.tell(EventKind.READY)
    half.door.accepts[0][1].set_result(TRANSFER)
    assert half.step().landed == ("d",)
    half.reported(["d"])
    assert half.holds == 0


def test_a_failure_before_its_answer_waits_for_the_blocks(half: Half) -> None:
    half.matched_tokens(decode_request(), 0)
    half.allocated(decode_request(), BLOCKS, len(TOKENS))
    half.tell(EventKind.FAILED)
    half.door.accepts[0][1].set_result(TRANSFER)
    assert half.step().failed == (), "the agent may still write into the blocks"
    half.tell(EventKind.FREED)
    assert half.step().failed == ("d",)


def test_a_request_that_wants_its_prompts_logprobs_computes_its_prompt(half: Half) -> None:
    request = decode_request()
    request.skip_reading_prefix_cache = True
    assert half.matched_tokens(request, 0) == (0, False)
    half.allocated(request, BLOCKS, 0)
    assert len(half.door.declined) == 1, "the prefill server keeps blocks for nobody"


def test_workers_are_told_when_nothing_is_computed(half: Half) -> None:
    assert half.step(idle=True).idle and not half.step().idle


def test_an_accept_without_an_answer_fails_with_the_connection(half: Half) -> None:
    half.matched_tokens(decode_request(), 0)
    half.allocated(decode_request(), BLOCKS, len(TOKENS))
    half.door.accepts[0][1].set_exception(DoorError("no_answer", "nothing is heard"))
    half.tell(EventKind.READY)
    assert half.step() == Step(watches={"d": Watch(TRANSFER, (7, 8, 9))})
    half.happened(Event(EventKind.FENCED))
    assert half.step().failed == ("d",)


def test_an_older_connection_that_ended_is_not_this_one(half: Half) -> None:
    half.matched_tokens(decode_request(), 0)
    half.happened(Event(EventKind.FENCED))
    half.happened(Event(EventKind.SERVING))
    half.allocated(decode_request(), BLOCKS, len(TOKENS))
    assert half.step().failed == ()


def test_an_agent_that_is_lost_in_between_is_a_failed_load(half: Half) -> None:
    assert half.matched_tokens(decode_request(), 0) == (len(TOKENS), True)
    half.door.serving = False
    half.allocated(decode_request(), BLOCKS, len(TOKENS))
    assert half.step().failed == ("d",), "vLLM waits for it"


def test_without_an_agent_prompts_are_computed_here(half: Half) -> None:
    half.door.serving = False
    request = decode_request()
    assert half.matched_tokens(request, 0) == (0, False)
    half.allocated(request, BLOCKS, 0)
    assert half.finished(prefill_request(), BLOCKS, complete=True) == (False, None)
    assert half.counters.take() == {"declined": 1} and half.holds == 0


@pytest.mark.parametrize(
    "params",
    [
        None,
        {},
        {"do_remote_prefill": True},
        {"meridian_ticket": "!"},
        {"meridian_ticket": "AAAA"},
        {"meridian_ticket": 7},
    ],
)
def test_what_is_no_ticket_is_not_asked_for(half: Half, params: dict[str, Any] | None) -> None:
    request = Request("d", TOKENS, params)
    assert half.matched_tokens(request, 0) == (0, False)
    half.allocated(request, BLOCKS, 0)
    assert half.finished(request, BLOCKS, complete=True) == (False, None)
    assert half.door.accepts == [] and half.door.declined == []


def test_embeddings_say_nothing_that_a_ticket_could_be_held_against(half: Half) -> None:
    request = decode_request()
    request.prompt_embeds = object()
    assert half.matched_tokens(request, 0) == (0, False)


def test_roles_are_kept() -> None:
    assert Half(consumes=False).matched_tokens(decode_request(), 0) == (0, False)
    assert Half(produces=False).finished(prefill_request(), BLOCKS, complete=True) == (False, None)


def test_an_offer_is_answered_with_its_ticket(half: Half) -> None:
    leg = base64.b64encode(b"sealed").decode()
    request = prefill_request(meridian_transfer=TRANSFER.hex(), meridian_leg=leg)
    kept, params = half.finished(request, ([7, 8, 9, 10],), complete=True)
    assert kept and params == decode_params(TRANSFER, TOKENS)
    offer, answer = half.door.offers[0]
    assert offer.transfer == TRANSFER and offer.tables == [[7, 8, 9]] and offer.layers == 2
    assert offer.keep == SETTINGS.keep and offer.leg == b"sealed"
    answer.set_result(b"the agent's own")
    assert half.step().freed == ()
    half.tell(EventKind.FREED, accepted=False)
    half.tell(EventKind.FREED, accepted=False)
    assert half.step().freed == ("p",) and half.step().freed == ()


def test_offers_have_ids_of_their_own(half: Half) -> None:
    half.finished(prefill_request(), BLOCKS, complete=True)
    half.finished(prefill_request(), BLOCKS, complete=True)
    assert len({offer.transfer for offer, _ in half.door.offers}) == 2


def test_the_same_transfer_is_not_offered_twice(half: Half) -> None:
    assert half.finished(prefill_request(meridian_transfer=TRANSFER.hex()), BLOCKS, complete=True)[0]
    assert half.finished(prefill_request(meridian_transfer=TRANSFER.hex()), BLOCKS, complete=True) == (
        False,
        None,
    )


@pytest.mark.parametrize("transfer", ["xyz", "00" * 16, "01", 7])
def test_an_unreadable_transfer_is_not_offered(half: Half, transfer: object) -> None:
    assert half.finished(prefill_request(meridian_transfer=transfer), BLOCKS, complete=True) == (False, None)


def test_what_is_not_computed_is_not_offered(half: Half) -> None:
    request = prefill_request()
    assert half.finished(request, BLOCKS, complete=False) == (False, None)
    request.num_computed_tokens -= 1
    assert half.finished(request, BLOCKS, complete=True) == (False, None)


@pytest.mark.parametrize(("code", "freed"), [("leg", ("p",)), ("lost", ("p",)), ("no_answer", ())])
def test_a_declined_offer_frees_its_blocks(half: Half, code: str, freed: tuple[str, ...]) -> None:
    half.finished(prefill_request(meridian_transfer=TRANSFER.hex()), BLOCKS, complete=True)
    half.door.offers[0][1].set_exception(DoorError(code, "no"))
    assert half.step().freed == freed
    half.tell(EventKind.FREED, accepted=False)
    assert half.step().freed == (() if freed else ("p",))


def test_an_offer_that_the_agent_forgets_is_withdrawn(half: Half) -> None:
    half.finished(prefill_request(meridian_transfer=TRANSFER.hex()), BLOCKS, complete=True)
    half.now = SETTINGS.keep + SETTINGS.deadline + 3
    half.step()
    half.step()
    assert half.door.withdrawn == [TRANSFER]


PROMISED = {"meridian_transfer": TRANSFER.hex(), "meridian_promised": True}


def test_a_promised_prompt_is_offered_with_its_last_step() -> None:
    half, request = Half(by_layers=True), prefill_request(**PROMISED)
    assert not half.promised
    half.allocated(request, ([7],), 0)
    assert half.promised
    half.promised.scheduled("p", 4, None)
    assert half.step().computing == () and not half.door.offers, "a step that does not end the prompt"
    half.promised.scheduled("p", 10, ([8, 9],))
    offer, answer = half.door.offers[0]
    assert offer.transfer == TRANSFER and offer.tables == [[7, 8, 9]] and offer.layers == 0
    assert not half.promised
    assert half.step().computing == ((TRANSFER, 0),)
    assert half.step().computing == ()
    answer.set_result(b"the agent's own")
    assert half.finished(request, BLOCKS, complete=True) == (True, decode_params(TRANSFER, TOKENS))
    assert half.door.told == [(TRANSFER, 2, 0)] and len(half.door.offers) == 1 and half.counters.ahead == 1
    half.tell(EventKind.FREED, accepted=False)
    assert half.step().freed == ("p",) and half.holds == 0


def test_blocks_of_a_prompt_that_was_taken_before_its_end_are_not_kept() -> None:
    half, request = Half(by_layers=True), prefill_request(**PROMISED)
    half.allocated(request, BLOCKS, 0)
    half.promised.scheduled("p", 10, None)
    half.tell(EventKind.FREED, accepted=False)
    assert half.step().freed == (), "vLLM has not given them out of its hands"
    assert half.finished(request, BLOCKS, complete=True) == (False, decode_params(TRANSFER, TOKENS))
    assert half.step().freed == ()


def test_a_promised_prompt_whose_offer_failed_is_not_answered_with_a_ticket() -> None:
    half, request = Half(by_layers=True), prefill_request(**PROMISED)
    half.allocated(request, BLOCKS, 0)
    half.promised.scheduled("p", 10, None)
    half.tell(EventKind.FREED, accepted=False, code="gone")
    assert half.finished(request, BLOCKS, complete=True) == (False, None)


def test_what_is_promised_may_take_longer(half: Half) -> None:
    promise = b"MRDP\x01" + TRANSFER + bytes(16) + b"\x04home" + bytes(32)
    request = decode_request(meridian_ticket=base64.b64encode(promise).decode())
    half.matched_tokens(request, 0)
    half.allocated(request, BLOCKS, len(TOKENS))
    accept, _ = half.door.accepts[0]
    assert accept.ticket == promise and accept.deadline == SETTINGS.deadline + SETTINGS.keep


def test_a_promised_prompt_that_is_aborted_is_withdrawn_and_its_blocks_are_kept() -> None:
    half, request = Half(by_layers=True), prefill_request(**PROMISED)
    half.allocated(request, BLOCKS, 0)
    half.promised.scheduled("p", 10, None)
    assert half.finished(request, BLOCKS, complete=False) == (True, None)
    assert half.door.withdrawn == [TRANSFER] and half.door.told == []
    half.tell(EventKind.FREED, accepted=False, code="withdrawn")
    assert half.step().freed == ("p",)


def test_a_promised_prompt_that_is_preempted_begins_again() -> None:
    half, request = Half(by_layers=True), prefill_request(**PROMISED)
    half.allocated(request, ([1],), 0)
    half.promised.scheduled("p", 4, None)
    half.allocated(request, BLOCKS, 0)
    half.promised.scheduled("p", 10, None)
    assert half.door.offers[0][0].tables == [[7, 8, 9]]


@pytest.mark.parametrize(
    ("by_layers", "params", "max_tokens"),
    [(False, PROMISED, 1), (True, {}, 1), (True, PROMISED, 2)],
    ids=["vLLM plans ahead", "nobody waits", "it goes on"],
)
def test_other_prompts_are_offered_at_their_end(
    by_layers: bool, params: dict[str, Any], max_tokens: int
) -> None:
    half, request = Half(by_layers=by_layers), prefill_request(**params)
    request.max_tokens = max_tokens
    half.allocated(request, BLOCKS, 0)
    half.promised.scheduled("p", 10, None)
    assert not half.door.offers
    assert half.finished(request, BLOCKS, complete=True)[0]
    assert half.door.offers[0][0].layers == 2


def test_a_promised_prompt_is_offered_at_its_end_if_the_agent_was_away_before() -> None:
    half, request = Half(by_layers=True), prefill_request(**PROMISED)
    half.door.serving = False
    half.allocated(request, BLOCKS, 0)
    half.promised.scheduled("p", 10, None)
    half.door.serving = True
    assert half.finished(request, BLOCKS, complete=True)[0]
    assert half.door.offers[0][0].layers == 2


def test_a_window_whose_edge_vllm_gave_up_is_not_handed_off() -> None:
    publication = Publication("fp32", [Layer(2, 8, window_tokens=8), Layer(2, 8)], BLOCK, 100)
    half = Half(cut=Cut(publication, (1, 0)))
    lost, kept = list(range(11)), list(range(12))
    blocks = ([1, 2, 3], [0, 5, 6])
    request = Request("p", lost, {"do_remote_decode": True}, num_computed_tokens=11)
    assert half.finished(request, blocks, complete=True) == (False, None)
    assert half.matched_tokens(Request("d", lost, decode_params(TRANSFER, lost)), 0) == (0, False)
    request = Request("p", kept, {"do_remote_decode": True}, num_computed_tokens=12)
    assert half.finished(request, blocks, complete=True)[0]
    assert half.door.offers[0][0].tables == [[0, 5, 6], [1, 2, 3]], "tables are in the order of layers"


def test_time_and_tokens_are_counted(half: Half) -> None:
    half.park(decode_request())
    half.now = 0.25
    half.tell(EventKind.READY)
    assert half.step().landed == ("d",)
    half.reported(["d"])
    assert half.counters.take() == {"ready_seconds": [0.25], "ready_tokens": [len(TOKENS)]}
    assert half.counters.take() == {}
