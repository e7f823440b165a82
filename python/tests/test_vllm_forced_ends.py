"""That a thought was ended comes from the worker to vLLM's answer, in whatever order vLLM asks for it."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from meridian.vllm.forced_ends import MAX_HEARD, PREFIX, Heard, Outbox, name_of


def request(name: str, stop_reason: int | str | None = None) -> Any:
    return SimpleNamespace(kv_transfer_params={"meridian_request": name}, stop_reason=stop_reason)


def test_what_is_sampled_after_vllm_has_asked_goes_with_the_same_step() -> None:
    """vLLM's older runner: what it was given is sent later than it is asked for."""
    outbox = Outbox()
    sent = []
    for step in range(3):
        outbox.begin()
        sent.append(outbox.give())
        outbox.add(f"r{step}", "hard_cap")
    assert sent == [{"r0": "hard_cap"}, {"r1": "hard_cap"}, {"r2": "hard_cap"}]


def test_what_is_sampled_before_vllm_asks_goes_with_the_same_step() -> None:
    """vLLM's newer runner. What a step has given is on its way when the next one samples."""
    outbox = Outbox()
    sent = []
    for step in range(3):
        outbox.begin()
        outbox.add(f"r{step}", "overthinking")
        sent.append(outbox.give())
    assert sent == [{"r0": "overthinking"}, {"r1": "overthinking"}, {"r2": "overthinking"}]


def test_a_step_without_a_connector_is_told_with_the_next() -> None:
    outbox = Outbox()
    outbox.begin()
    outbox.give()
    outbox.begin()
    outbox.add("r", "hard_cap")
    outbox.begin()
    assert outbox.give() == {"r": "hard_cap"}


def test_what_a_worker_without_a_connector_keeps_is_bounded() -> None:
    """Clients name requests whether a connector is loaded or not."""
    outbox = Outbox()
    for number in range(MAX_HEARD + 10):
        outbox.add(f"r{number}", "hard_cap")
    told = outbox.give()
    assert len(told) == MAX_HEARD and f"r{MAX_HEARD + 9}" in told


@pytest.mark.parametrize("own", [None, 17, "repetition_detected"])
def test_what_vllm_says_of_the_end_is_kept(own: int | str | None) -> None:
    heard, ended = Heard(), request("a", own)
    heard.hear({"a": "hard_cap", "b": "converged"})
    heard.hear({"a": "overthinking"})
    heard.finish(ended)
    reason, _, rest = ended.stop_reason.removeprefix(PREFIX).partition(":")
    assert ended.stop_reason.startswith(PREFIX) and (reason, json.loads(rest)) == ("hard_cap", own)
    assert len(heard) == 1
    again = request("a", own)
    heard.finish(again)
    assert again.stop_reason == own, "it was told twice"


def test_who_does_not_ask_is_told_nothing() -> None:
    heard = Heard()
    heard.hear({"": "hard_cap", "a": "hard_cap"})
    for params in (None, {}, {"meridian_request": 5}, {"meridian_request": "a" * 65}, {"other": "a"}, ["a"]):
        assert name_of(params) == ""  # type: ignore[arg-type]
        ended = SimpleNamespace(kv_transfer_params=params, stop_reason=None)
        heard.finish(ended)
        assert ended.stop_reason is None


def test_what_is_kept_of_requests_that_never_end_is_bounded() -> None:
    heard = Heard()
    for number in range(MAX_HEARD + 10):
        heard.hear({f"r{number}": "hard_cap"})
    assert len(heard) == MAX_HEARD
    oldest, newest = request("r0"), request(f"r{MAX_HEARD + 9}")
    heard.finish(oldest)
    heard.finish(newest)
    assert oldest.stop_reason is None and newest.stop_reason
