"""What the connector's scheduler asks of the cell's shared cache, and what it lets it keep."""

from __future__ import annotations

import base64
import dataclasses
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from vllmworld import BLOCK, CUT, SETTINGS, WINDOWED, FakeDoor, Request, decode_params, found_ticket

from meridian.door import CacheTerms, DoorError, Event, EventKind, Found, Scope
from meridian.vllm import shared
from meridian.vllm.cut import Cut
from meridian.vllm.scheduler import ConnectorScheduler
from meridian.vllm.settings import Settings

TRANSFER = bytes(range(1, 17))
TOKENS = list(range(23))
TABLE = ([5, 6, 7, 8, 9, 10],)
FOUND = 4 * BLOCK


class Scheduler(ConnectorScheduler):
    """A scheduler whose agent has a cache of pieces of two blocks."""

    def __init__(self, cut: Cut = CUT, cache: bool = True, settings: Settings = SETTINGS) -> None:
        self.now = 0.0
        super().__init__(settings, cut, produces=True, consumes=True, clock=lambda: self.now)
        self.door = FakeDoor(cache=CacheTerms(2 * BLOCK, 0.0) if cache else None)
        self.attach(self.door)

    def answer(self, found: Found | Exception) -> None:
        asked = self.door.finds[-1][1]
        if isinstance(found, Found):
            asked.set_result(found)
        else:
            asked.set_exception(found)

    def free(self, transfer: bytes, problem: DoorError | None = None) -> None:
        self.happened(Event(EventKind.FREED, transfer, False, problem))


def request(**more: Any) -> Request:
    return Request("r", TOKENS, None, **more)


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler()


def test_a_prompt_begins_with_what_the_cell_has(scheduler: Scheduler) -> None:
    asks = request(cache_salt="salt")
    assert scheduler.matched_tokens(asks, BLOCK) == (None, False), "until it is answered"
    find, _ = scheduler.door.finds[0]
    assert find.tokens == TOKENS[:-1], "the last token is computed here, to sample from it"
    assert find.scope == Scope(salt="salt") and find.present_tokens == BLOCK
    scheduler.answer(Found(FOUND, found_ticket(TRANSFER)))
    assert scheduler.matched_tokens(asks, BLOCK) == (FOUND - BLOCK, True)
    assert scheduler.matched_tokens(asks, BLOCK) == (FOUND - BLOCK, True), "asking changed something"
    scheduler.allocated(asks, TABLE, FOUND - BLOCK)
    accept, _ = scheduler.door.accepts[0]
    assert accept.ticket == found_ticket(TRANSFER) and list(accept.tokens) == TOKENS[:FOUND]
    assert accept.present_tokens == BLOCK and accept.tables == [[5, 6, 7, 8]]
    assert scheduler.step().watches["r"].blocks == (6, 7, 8)
    scheduler.happened(Event(EventKind.READY, TRANSFER, True))
    scheduler.step()
    assert scheduler.counters.take() == {"found_tokens": FOUND - BLOCK}
    assert len(scheduler.door.finds) == 1 and scheduler.door.declined == []


@pytest.mark.parametrize(
    ("params", "leg"),
    [
        (None, b""),
        ({"meridian_leg": base64.b64encode(b"sealed").decode()}, b"sealed"),
        ({"do_remote_prefill": True, "meridian_leg": base64.b64encode(b"sealed").decode()}, b"sealed"),
        ({"meridian_leg": "no base64!"}, b""),
        ({"meridian_leg": 7}, b""),
    ],
)
def test_the_gateways_word_goes_with_what_is_kept_and_found(
    scheduler: Scheduler, params: dict[str, Any] | None, leg: bytes
) -> None:
    asks = request()
    asks.kv_transfer_params = params
    assert scheduler.matched_tokens(asks, 0) == (None, False)
    scheduler.answer(Found())
    assert scheduler.matched_tokens(asks, 0) == (0, False)
    asks.num_computed_tokens = len(TOKENS)
    scheduler.finished(asks, TABLE, complete=True)
    assert scheduler.door.finds[0][0].leg == leg and scheduler.door.keeps[0][0].leg == leg


def test_an_answer_in_time_costs_no_step(scheduler: Scheduler) -> None:
    answered: Future[Found] = Future()
    answered.set_result(Found(FOUND, found_ticket(TRANSFER)))
    scheduler.door.find_soon = lambda find: answered  # type: ignore[method-assign]
    assert scheduler.matched_tokens(request(), 0) == (FOUND, True)


@pytest.mark.parametrize(
    "answer", [Found(), DoorError("busy", "too much"), Found(FOUND, found_ticket(TRANSFER))]
)
def test_what_adds_nothing_is_computed(scheduler: Scheduler, answer: Found | DoorError) -> None:
    asks = request()
    scheduler.matched_tokens(asks, 0)
    scheduler.answer(answer)
    assert scheduler.matched_tokens(asks, FOUND) == (0, False)
    scheduler.allocated(asks, TABLE, 0)
    scheduler.step()
    ticket = answer.ticket if isinstance(answer, Found) else b""
    assert scheduler.door.declined == ([ticket] if ticket else []) and scheduler.door.accepts == []


def test_an_agent_that_does_not_answer_is_not_waited_for(scheduler: Scheduler) -> None:
    asks = request()
    assert scheduler.matched_tokens(asks, 0) == (None, False)
    scheduler.now = 5.0
    assert scheduler.matched_tokens(asks, 0) == (0, False)
    scheduler.allocated(asks, TABLE, 0)
    scheduler.answer(Found(FOUND, found_ticket(TRANSFER)))
    scheduler.step()
    assert scheduler.door.declined == [found_ticket(TRANSFER)], "what comes late goes back"


def test_a_request_that_ends_while_it_asks_gives_the_ticket_back(scheduler: Scheduler) -> None:
    asks = request()
    scheduler.matched_tokens(asks, 0)
    assert scheduler.finished(asks, ([],), complete=False) == (False, None)
    scheduler.answer(Found(FOUND, found_ticket(TRANSFER)))
    scheduler.step()
    assert scheduler.door.declined == [found_ticket(TRANSFER)]


def test_a_prefix_that_does_not_come_is_asked_for_once(scheduler: Scheduler) -> None:
    asks = request()
    scheduler.matched_tokens(asks, 0)
    scheduler.answer(Found(FOUND, found_ticket(TRANSFER)))
    scheduler.matched_tokens(asks, 0)
    scheduler.allocated(asks, TABLE, FOUND)
    scheduler.step()
    scheduler.door.accepts[0][1].set_result(TRANSFER)
    scheduler.happened(Event(EventKind.FAILED, TRANSFER, True, DoorError("gone", "its owner is gone")))
    scheduler.happened(Event(EventKind.FREED, TRANSFER, True))
    assert scheduler.step().failed == ("r",)
    scheduler.reported(["r"])
    assert (
        scheduler.matched_tokens(asks, 0) == (0, False)
        and len(scheduler.door.finds) == 1
        and scheduler.holds == 0
    )


def test_blocks_that_were_lost_meanwhile_are_asked_for_anew(scheduler: Scheduler) -> None:
    asks = request()
    scheduler.matched_tokens(asks, 2 * BLOCK)
    scheduler.answer(Found(FOUND, found_ticket(TRANSFER)))
    assert scheduler.matched_tokens(asks, BLOCK) == (None, False), "what was found begins two blocks in"
    scheduler.step()
    assert scheduler.door.declined == [found_ticket(TRANSFER)]
    assert scheduler.door.finds[-1][0].present_tokens == BLOCK
    scheduler.answer(Found(FOUND, found_ticket(TRANSFER[::-1])))
    assert scheduler.matched_tokens(asks, BLOCK) == (FOUND - BLOCK, True)
    assert scheduler.matched_tokens(asks, 2 * BLOCK) == (FOUND - 2 * BLOCK, True), "more is no harm"


def test_a_ticket_that_waited_too_long_is_not_used(scheduler: Scheduler) -> None:
    asks = request()
    scheduler.matched_tokens(asks, 0)
    scheduler.answer(Found(FOUND, found_ticket(TRANSFER)))
    assert scheduler.matched_tokens(asks, 0) == (FOUND, True)
    scheduler.now += 3.0  # there were no blocks for it
    assert scheduler.matched_tokens(asks, 0) == (None, False) and len(scheduler.door.finds) == 2
    scheduler.step()
    assert scheduler.door.declined == [found_ticket(TRANSFER)]


def test_a_prefix_is_waited_for_less_than_a_hand_off(scheduler: Scheduler) -> None:
    asks = request()
    scheduler.matched_tokens(asks, 0)
    scheduler.answer(Found(FOUND, found_ticket(TRANSFER)))
    scheduler.matched_tokens(asks, 0)
    scheduler.allocated(asks, TABLE, FOUND)
    assert scheduler.door.accepts[0][0].deadline == 2.0 < SETTINGS.deadline


def test_of_other_weights_nothing_old_is_found(scheduler: Scheduler) -> None:
    scheduler.matched_tokens(request(), 0)
    scheduler.answer(Found(FOUND, found_ticket(TRANSFER)))
    scheduler.step()
    scheduler.weights_change("a test", empty=True)
    assert scheduler.matched_tokens(request(), 0) == (None, False)
    scheduler.finished(request(num_computed_tokens=len(TOKENS), answer=[90]), TABLE, complete=True)
    assert scheduler.door.finds[-1][0].request_id != ""
    asked, kept = scheduler.door.finds[-1][0].scope.revision, scheduler.door.keeps[-1][0].scope.revision
    assert asked == kept and "#" in asked, "what is kept from now on is found"
    scheduler.step()
    assert found_ticket(TRANSFER) in scheduler.door.declined
    scheduler.weights_change("a test", empty=True)
    scheduler.matched_tokens(Request("later", TOKENS, None), 0)
    assert scheduler.door.finds[-1][0].scope.revision not in ("", asked)
    scheduler.weights_named("2")
    scheduler.matched_tokens(Request("last", TOKENS, None), 0)
    assert "@" in scheduler.door.finds[-1][0].scope.revision


def test_blocks_of_either_weights_are_not_shared(scheduler: Scheduler) -> None:
    """A request that was computed with both is not kept, handed off or continued from elsewhere."""
    scheduler.weights_change("a test", empty=False)
    assert scheduler.matched_tokens(request(), 0) == (0, False)
    handed = Request("d", TOKENS, decode_params(TRANSFER, TOKENS))
    assert scheduler.matched_tokens(handed, 0) == (0, False)
    ended = request(num_computed_tokens=len(TOKENS), answer=[90])
    assert scheduler.finished(ended, TABLE, complete=True) == (False, None)
    prompt = Request("p", TOKENS, {"do_remote_decode": True}, num_computed_tokens=len(TOKENS))
    assert scheduler.finished(prompt, TABLE, complete=True) == (False, None)
    assert not scheduler.door.finds and not scheduler.door.keeps and not scheduler.door.offers
    scheduler.cache_was_reset(done=False)
    assert scheduler.finished(ended, TABLE, complete=True) == (False, None)
    scheduler.cache_was_reset(done=True)
    assert scheduler.finished(ended, TABLE, complete=True) == (True, None)
    assert "#" in scheduler.door.keeps[0][0].scope.revision
    assert scheduler.finished(prompt, TABLE, complete=True) == (False, None), (
        "no other server has its weights"
    )
    scheduler.weights_named("2")
    kept, params = scheduler.finished(prompt, TABLE, complete=True)
    assert kept and params and "@" in scheduler.door.offers[0][0].scope.revision


def test_a_reset_of_what_is_kept_ends_no_hand_offs(scheduler: Scheduler) -> None:
    scheduler.reset(empty=True)
    ended = request(num_computed_tokens=len(TOKENS), answer=[90])
    assert scheduler.finished(ended, TABLE, complete=True) == (True, None)
    assert "#" in scheduler.door.keeps[0][0].scope.revision
    prompt = Request("p", TOKENS, {"do_remote_decode": True}, num_computed_tokens=len(TOKENS))
    assert scheduler.finished(prompt, TABLE, complete=True)[0]
    assert scheduler.door.offers[0][0].scope.revision == ""
    scheduler.reset(empty=False)
    again = dataclasses.replace(ended, request_id="again")
    assert scheduler.finished(again, TABLE, complete=True) == (False, None), "of blocks from before"
    scheduler.weights_change("a test", empty=True)
    scheduler.cache_was_reset(done=True)
    scheduler.weights_named("2")
    scheduler.reset(empty=False)
    assert scheduler.finished(again, TABLE, complete=True) == (True, None)
    assert "@" in scheduler.door.keeps[-1][0].scope.revision, "its version says whose it is"


@pytest.mark.parametrize(
    "scheduler",
    [Scheduler(cache=False), Scheduler(cut=WINDOWED)],
    ids=["an agent without a cache", "layers with windows"],
)
def test_without_a_cache_nothing_is_asked(scheduler: Scheduler) -> None:
    assert scheduler.matched_tokens(request(), 0) == (0, False)
    ended = request(num_computed_tokens=len(TOKENS), answer=[1])
    assert scheduler.finished(ended, TABLE, complete=True) == (False, None)
    assert scheduler.door.finds == [] and scheduler.door.keeps == []


def test_short_prompts_are_not_worth_a_question(scheduler: Scheduler) -> None:
    assert scheduler.matched_tokens(Request("r", TOKENS[: 2 * BLOCK], None), 0) == (0, False)
    assert scheduler.matched_tokens(request(), len(TOKENS) - BLOCK) == (0, False)
    assert scheduler.matched_tokens(request(skip_reading_prefix_cache=True), 0) == (0, False)
    assert scheduler.door.finds == []


def test_a_request_with_a_ticket_does_not_ask_the_cache(scheduler: Scheduler) -> None:
    handed = Request("d", TOKENS, decode_params(TRANSFER, TOKENS))
    assert scheduler.matched_tokens(handed, 0) == (len(TOKENS), True) and scheduler.door.finds == []


def test_what_is_finished_is_kept_until_the_agent_has_it(scheduler: Scheduler) -> None:
    ended = request(num_computed_tokens=len(TOKENS) + 1, answer=[90, 91], cache_salt="salt")
    assert scheduler.finished(ended, ([*TABLE[0], 11],), complete=True) == (True, None)
    keep, asked = scheduler.door.keeps[0]
    assert keep.request_id == ended.request_id
    assert list(keep.tokens) == [*TOKENS, 90], "the last token was sampled, and never computed"
    assert keep.tables == [[5, 6, 7, 8, 9, 10]] and keep.scope == Scope(salt="salt")
    asked.set_result(None)
    assert scheduler.step().freed == () and scheduler.holds == 1
    scheduler.free(keep.transfer)
    assert scheduler.step().freed == ("r",) and scheduler.holds == 0
    assert scheduler.counters.take() == {"kept": 1}


@pytest.mark.parametrize(
    ("end", "kept"),
    [
        ([89], len(TOKENS)),
        ([89, 90], len(TOKENS)),
        ([91], len(TOKENS)),
        ([90, 89], len(TOKENS) + 2),
        ([22], len(TOKENS) + 2),
        ([], len(TOKENS) + 2),
        (None, len(TOKENS) + 2),
        ("89", len(TOKENS) + 2),
        ([True], len(TOKENS) + 2),
        ([89] * 65, len(TOKENS) + 2),
    ],
)
def test_a_thought_is_not_kept(scheduler: Scheduler, end: object, kept: int) -> None:
    ended = request(answer=[89, 90, 91], num_computed_tokens=len(TOKENS) + 2)
    ended.kv_transfer_params = {"meridian_thought_end": end}
    assert scheduler.finished(ended, ([*TABLE[0], 11],), complete=True) == (True, None)
    assert list(scheduler.door.keeps[0][0].tokens) == [*TOKENS, 89, 90][:kept]


def test_what_the_agent_refuses_is_free_at_once(scheduler: Scheduler) -> None:
    ended = request(num_computed_tokens=len(TOKENS), answer=[90])
    assert scheduler.finished(ended, TABLE, complete=True) == (True, None)
    scheduler.door.keeps[0][1].set_exception(DoorError("busy", "too much at once"))
    assert scheduler.step().freed == ("r",) and scheduler.holds == 0
    assert scheduler.counters.take() == {"not_kept": 1}


def test_what_no_owner_took_is_not_counted_as_kept(scheduler: Scheduler) -> None:
    """The agent took the blocks, and found afterwards that too much was on its way."""
    scheduler.finished(request(num_computed_tokens=len(TOKENS), answer=[90]), TABLE, complete=True)
    keep, asked = scheduler.door.keeps[0]
    asked.set_result(None)
    scheduler.free(keep.transfer, DoorError("declined", "as much as may be is on its way to be kept"))
    assert scheduler.step().freed == ("r",)
    assert scheduler.counters.take() == {"not_kept": 1}


def test_an_abort_is_not_kept(scheduler: Scheduler) -> None:
    ended = request(num_computed_tokens=len(TOKENS), answer=[90])
    assert scheduler.finished(ended, TABLE, complete=False) == (False, None) and scheduler.door.keeps == []


def test_what_takes_too_long_to_keep_is_withdrawn(scheduler: Scheduler) -> None:
    scheduler.finished(request(num_computed_tokens=len(TOKENS), answer=[90]), TABLE, complete=True)
    scheduler.door.keeps[0][1].set_result(None)
    scheduler.now = SETTINGS.deadline + 10.0
    scheduler.step()
    assert scheduler.door.withdrawn == [scheduler.door.keeps[0][0].transfer] and scheduler.holds == 1


def compute(scheduler: Scheduler, ended: float, **computes: int) -> None:
    """Have a step computed, from now on until then."""
    scheduler.step(computes=computes)
    scheduler.now = ended
    scheduler.reported([])


def test_an_agent_hears_what_a_token_costs(scheduler: Scheduler) -> None:
    scheduler.matched_tokens(request(), 0)
    assert scheduler.door.finds[0][0].token_time == 0.0, "it is not known yet"
    compute(scheduler, 0.010, a=1)
    compute(scheduler, 0.110, a=100)
    scheduler.matched_tokens(Request("s", TOKENS, None), 0)
    assert scheduler.door.finds[1][0].token_time == pytest.approx(0.0009)


def test_what_vllm_adds_to_a_load_is_taken_off(scheduler: Scheduler) -> None:
    compute(scheduler, 0.1, a=100)
    asks = request()
    scheduler.matched_tokens(asks, 0)
    scheduler.now = 0.2
    scheduler.answer(Found(FOUND, found_ticket(TRANSFER)))
    scheduler.now = 0.201  # a step went by before it was asked again
    assert scheduler.matched_tokens(asks, 0) == (FOUND, True)
    scheduler.allocated(asks, TABLE, FOUND)
    scheduler.step(idle=True, computes={})
    scheduler.door.accepts[0][1].set_result(TRANSFER)
    scheduler.now = 0.5
    scheduler.happened(Event(EventKind.READY, TRANSFER, True))
    scheduler.now = 0.504
    scheduler.reported(["r"])
    scheduler.allocated(asks, TABLE, 0)
    scheduler.now = 0.506
    scheduler.step(computes={"r": len(TOKENS) - FOUND})
    scheduler.matched_tokens(Request("s", TOKENS, None), 0)
    delay = 0.001 + 0.006  # what it took to find and to bring is the agent's to measure
    assert scheduler.door.finds[1][0].token_time == pytest.approx(0.001 - delay / (len(TOKENS) - 1))


def test_everything_is_taken_where_that_is_wanted() -> None:
    scheduler = Scheduler(settings=dataclasses.replace(SETTINGS, cache_always=True))
    compute(scheduler, 0.1, a=100)
    scheduler.matched_tokens(request(), 0)
    assert scheduler.door.finds[0][0].token_time == 0.0


def waits(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch, takes: float) -> list[float]:
    """Return how long is waited for each answer, none of which comes, in a while that is told."""
    all_: list[float] = []

    def wait(_: object, timeout: float) -> None:
        all_.append(timeout)
        scheduler.now += min(timeout, takes)

    monkeypatch.setattr("meridian.vllm.shared.wait", wait)
    return all_


def test_an_idle_server_waits_rather_than_make_an_empty_step(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = waits(scheduler, monkeypatch, takes=0.004)
    scheduler.step(idle=True, computes={})
    scheduler.matched_tokens(request(), 0)
    scheduler.matched_tokens(Request("s", TOKENS, None), 0)
    scheduler.matched_tokens(Request("t", TOKENS, None), 0)
    assert waited == pytest.approx([0.005, 0.001, 0.0]), "what is waited in a step is bounded"
    scheduler.step(computes={"u": 1})
    scheduler.matched_tokens(Request("v", TOKENS, None), 0)
    assert waited[3:] == [0.0], "others have to go on"
    scheduler.finished(Request("u", TOKENS, None), ([],), complete=False)
    scheduler.matched_tokens(Request("w", TOKENS, None), 0)
    assert waited[4:] == [0.005], "no request is left"


def test_media_that_vllm_does_not_name_are_shared_with_no_other_request() -> None:
    """Two processes give different pictures the same name there: one's text would be of the other's."""
    nameless = ConnectorScheduler(SETTINGS, CUT, produces=True, consumes=True, names_media=False)
    nameless.attach(door := FakeDoor(cache=CacheTerms(2 * BLOCK, 0.0)))
    position = SimpleNamespace(offset=2, length=3)
    sees = request(mm_features=[SimpleNamespace(identifier="renderer0-mm-1-image-0", mm_position=position)])
    assert nameless.matched_tokens(sees, 0) == (0, False)
    nameless.allocated(sees, TABLE, 0)
    sees.num_computed_tokens = len(TOKENS)
    assert nameless.finished(sees, TABLE, complete=True) == (False, None)
    assert door.finds == [] and door.keeps == []
    offers = Request("p", TOKENS, {"do_remote_decode": True}, len(TOKENS), mm_features=sees.mm_features)
    assert nameless.finished(offers, TABLE, complete=True) == (False, None) and door.offers == []
    assert nameless.matched_tokens(Request("text", TOKENS, None), 0) == (None, False)


@pytest.mark.parametrize("params", ["a text", ["a list"], 7])
def test_params_that_are_no_object_say_nothing(scheduler: Scheduler, params: Any) -> None:
    """A client may write them into vllm_xargs."""
    ends = Request("r", TOKENS, params, num_computed_tokens=len(TOKENS), answer=[1])
    assert scheduler.finished(ends, TABLE, complete=True) == (True, None)
    assert list(scheduler.door.keeps[0][0].tokens) == TOKENS


def test_a_crowd_does_not_make_a_step_wait_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM asks for every request that waits, and those that run stand still meanwhile."""
    scheduler = Scheduler()
    scheduler.door.cache = CacheTerms(2 * BLOCK, 0.25)

    def wait(_: object, timeout: float) -> None:
        scheduler.now += timeout

    monkeypatch.setattr(shared, "wait", wait)
    scheduler.step(computes={"running": 1})
    for step in (1, 2):
        for number in range(100):
            assert scheduler.matched_tokens(Request(f"r{step}-{number}", TOKENS, None), 0) == (None, False)
        assert scheduler.now == step * 8 * 0.25 and len(scheduler.door.finds) == step * 100
        scheduler.step(computes={"running": 1})


@pytest.mark.parametrize(
    "found",
    [
        Found(len(TOKENS), found_ticket(TRANSFER)),
        Found(len(TOKENS) + 100, found_ticket(TRANSFER)),
        Found(FOUND),
        Found(FOUND, b"no ticket"),
    ],
    ids=["the last token too", "more than there is", "without a ticket", "with no ticket"],
)
def test_an_answer_that_does_not_fit_is_none(scheduler: Scheduler, found: Found) -> None:
    """vLLM's engine ends where it is told of more tokens than a request has."""
    asks = request()
    assert scheduler.matched_tokens(asks, 0) == (None, False)
    scheduler.answer(found)
    assert scheduler.matched_tokens(asks, 0) == (0, False)
    scheduler.allocated(asks, TABLE, 0)
    assert scheduler.door.accepts == []
