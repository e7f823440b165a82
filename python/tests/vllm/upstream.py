"""Lets vLLM's own tests of connectors run with Meridian's. A pytest plugin for vLLM's environment.

The tests play vLLM's workers; the connector's scheduler is the real one. In place of
the agent stands a door that agrees to everything, and requests that NIXL's parameters
would send elsewhere carry a ticket instead. UPSTREAM_MODEL is the model's directory.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

import pytest

from meridian.door import Accept, Offer, new_transfer
from meridian.door.ticket import MAGIC, VERSION, transfer_of
from meridian.vllm import connector
from meridian.vllm.transfer_params import params_of

_T = TypeVar("_T")


class AgreeableDoor:
    """An agent that takes every offer and begins every accept, and never says another word."""

    serving = True

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def open(self, required: bool = True) -> None:
        pass

    def publish(self, publication: object) -> None:
        pass

    def write_ticket(self, offer: Offer) -> bytes:
        return ticket(offer.transfer)

    def offer_soon(self, offer: Offer) -> Future[bytes]:
        return done(ticket(offer.transfer))

    def accept_soon(self, accept: Accept) -> Future[bytes]:
        return done(transfer_of(accept.ticket))

    def withdraw_offer_soon(self, transfer: bytes) -> Future[None]:
        return done(None)

    cancel_accept_soon = decline_ticket_soon = withdraw_offer_soon

    def close(self, timeout: float = 0.0) -> None:
        pass


def done(value: _T) -> Future[_T]:
    future: Future[_T] = Future()
    future.set_result(value)
    return future


def ticket(transfer: bytes) -> bytes:
    return MAGIC + bytes([VERSION]) + transfer


def with_tickets(create_request: Callable[..., Any]) -> Callable[..., Any]:
    """Let requests that were prefilled elsewhere say so in our words."""

    @functools.wraps(create_request)
    def create(*arguments: Any, **options: Any) -> Any:
        request = create_request(*arguments, **options)
        params = request.kv_transfer_params
        if params and params.get("do_remote_prefill"):
            request.kv_transfer_params = params_of(ticket(new_transfer()))
        return request

    return create


def with_real_names(group_spec: Callable[..., Any]) -> Callable[..., Any]:
    """Let layers be called as models call them; the tests' "layer" does not say which one it is."""

    @functools.wraps(group_spec)
    def spec(layers: list[str], *arguments: Any, **options: Any) -> Any:
        names = [f"model.layers.{number}.self_attn.attn" for number in range(len(layers))]
        return group_spec(names, *arguments, **options)

    return spec


def default(function: Callable[..., Any], **values: object) -> None:
    """Change what parameters are when they are not given."""
    parameters = inspect.signature(function).parameters
    named = [name for name in parameters if parameters[name].default is not inspect.Parameter.empty]
    function.__defaults__ = tuple(values.get(name, parameters[name].default) for name in named)


def pytest_configure(config: pytest.Config) -> None:
    from tests.v1.kv_connector.unit import utils  # type: ignore[import-not-found]

    vars(connector)["Door"] = AgreeableDoor
    default(
        utils.create_vllm_config,
        model=os.environ["UPSTREAM_MODEL"],
        kv_connector="Connector",
        kv_connector_module_path="meridian.vllm",
        kv_role="kv_both",
        kv_connector_extra_config={"socket": "/nowhere"},
    )
    utils.create_request = with_tickets(utils.create_request)
    utils.KVCacheGroupSpec = with_real_names(utils.KVCacheGroupSpec)
