"""What the connector's scheduler logs: one message of each kind, whatever requests hold."""

from __future__ import annotations

import logging

import pytest
from vllmworld import CUT, SETTINGS, FakeDoor, Request, decode_params

from meridian.door import DoorError, Event, EventKind, new_transfer
from meridian.vllm.scheduler import ConnectorScheduler

TOKENS = list(range(10))
BLOCKS = ([7, 8, 9],)


class Scheduler(ConnectorScheduler):
    """A connector's scheduler with its door at hand."""

    def __init__(self, *, produces: bool = True, consumes: bool = True, by_layers: bool = False) -> None:
        super().__init__(SETTINGS, CUT, produces=produces, consumes=consumes, by_layers=by_layers)
        self.door = FakeDoor()
        self.attach(self.door)

    def fail(self, code: str, why: str = "so it is") -> None:
        """Let a load fail."""
        transfer = new_transfer()
        request = Request(transfer.hex(), TOKENS, decode_params(transfer, TOKENS))
        self.matched_tokens(request, 0)
        self.allocated(request, BLOCKS, len(TOKENS))
        self.door.accepts[-1][1].set_exception(DoorError(code, why))
        self.step()

    def compute(self, **params: object) -> None:
        """Let a prompt be computed for a decode engine."""
        request = Request("p", TOKENS, {"do_remote_decode": True} | params, num_computed_tokens=len(TOKENS))
        self.allocated(request, BLOCKS, 0)
        self.finished(request, BLOCKS, complete=True)


@pytest.fixture(autouse=True)
def warnings(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.WARNING, "meridian.vllm")
    return caplog


def test_a_reason_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = Scheduler()
    scheduler.fail("incompatible", "packing: source a, destination b")
    scheduler.fail("incompatible", "packing: source a, destination b")
    assert caplog.messages == [
        "a prompt's cache did not come: packing: source a, destination b (incompatible)"
    ]
    scheduler.happened(Event(EventKind.SERVING))
    scheduler.fail("incompatible")
    assert len(caplog.messages) == 2, "an agent that is new may have new reasons"


def test_odd_requests_do_not_silence_what_comes_after_them(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = Scheduler()
    for number in range(1000):
        scheduler.compute(meridian_transfer=f"odd {number}")
        scheduler.fail("unknown", f"there is no transfer {number}")
        scheduler.compute(meridian_transfer="01" * 16)  # offered before, all but once
    assert len(caplog.messages) == 3, caplog.messages
    scheduler.fail("digest")
    scheduler.door.serving = False
    scheduler.compute()
    assert [message.rpartition(" ")[2] for message in caplog.messages[3:]] == ["(digest)", "(not_serving)"]


def test_an_agent_is_lost_once(caplog: pytest.LogCaptureFixture) -> None:
    scheduler = Scheduler()
    for kind in (EventKind.FENCED, EventKind.SERVING, EventKind.FENCED, EventKind.FENCED):
        scheduler.happened(Event(kind))  # as where a rank is refused, and tries again
    assert len(caplog.messages) == 1 and "lost" in caplog.text


@pytest.mark.parametrize("by_layers", [False, True])
def test_who_only_computes_prompts_complains_too(caplog: pytest.LogCaptureFixture, by_layers: bool) -> None:
    scheduler = Scheduler(consumes=False, by_layers=by_layers)
    scheduler.compute(meridian_transfer="xyz")
    scheduler.compute(meridian_transfer="uvw")
    (message,) = caplog.messages
    assert "kv_transfer_params" in message and "'xyz'" in message
    assert not scheduler.door.offers
