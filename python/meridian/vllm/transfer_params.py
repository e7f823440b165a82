"""What `kv_transfer_params` say: which part of a disaggregated request this server does."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from meridian.door import is_promise, transfer_of

_TICKET: Final = "meridian_ticket"
_LEG: Final = "meridian_leg"
_TRANSFER: Final = "meridian_transfer"
_PROMISED: Final = "meridian_promised"
_UNUSED: Final = "meridian_unused"
_THOUGHT_END: Final = "meridian_thought_end"
_LONGEST_END: Final = 64


@dataclass(frozen=True, slots=True)
class PrefillLeg:
    """The prompt is computed here, to be decoded elsewhere."""

    transfer: bytes | None
    """The id that the gateway gave it; None: any will do."""
    seal: bytes
    """The gateway's word that it made this leg; empty without a gateway."""
    promised: bool = False
    """A decode server has been promised the cache, and waits for it."""


@dataclass(frozen=True, slots=True)
class DecodeLeg:
    """The prompt was computed elsewhere."""

    ticket: bytes
    transfer: bytes
    seal: bytes
    promised: bool
    """The ticket is a promise, and the prompt may still have to be computed there."""
    unused: bool = False
    """No engine will take the cache: the ticket is to be given back."""


def leg_of(params: Mapping[str, Any] | None) -> PrefillLeg | DecodeLeg | None:
    """Read what a request came with. None: it is wholly this server's. ValueError: it makes no sense."""
    if not params:
        return None
    if not isinstance(params, Mapping):  # a client may write anything into vllm_xargs
        raise ValueError(f"kv_transfer_params are a {type(params).__name__}, want an object")
    if params.get(_TICKET):
        ticket = _bytes(params, _TICKET)
        unused = params.get(_UNUSED) is True
        return DecodeLeg(ticket, transfer_of(ticket), _bytes(params, _LEG), is_promise(ticket), unused)
    if params.get("do_remote_decode"):
        return PrefillLeg(_transfer(params), _bytes(params, _LEG), params.get(_PROMISED) is True)
    return None


def seal_of(params: Mapping[str, Any] | None) -> bytes:
    """Return the gateway's word for a request, whatever it does here; empty where none can be read."""
    try:
        return _bytes(params, _LEG) if isinstance(params, Mapping) else b""
    except ValueError:
        return b""


def thought_end_of(params: Mapping[str, Any] | None) -> list[int]:
    """Return the tokens that end a thought, as a gateway tells them; none: all of an answer may be kept."""
    end = params.get(_THOUGHT_END) if isinstance(params, Mapping) else None
    if not isinstance(end, list) or len(end) > _LONGEST_END or not all(type(token) is int for token in end):
        return []
    return end


def params_of(ticket: bytes) -> dict[str, Any]:
    """Return what a prefill server answers, to be passed on to a decode server as it is."""
    return {
        "do_remote_prefill": True,
        "do_remote_decode": False,
        _TICKET: base64.b64encode(ticket).decode(),
    }


def _transfer(params: Mapping[str, Any]) -> bytes | None:
    text = params.get(_TRANSFER)
    if text is None or text == "":
        return None
    try:
        transfer = bytes.fromhex(text)
    except (TypeError, ValueError):
        transfer = b""
    if len(transfer) != 16 or not any(transfer):
        raise ValueError(f"{_TRANSFER} is {text!r}, want 32 hexadecimal digits that are not all zero")
    return transfer


def _bytes(params: Mapping[str, Any], key: str) -> bytes:
    text = params.get(key)
    if text is None:
        return b""
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise ValueError(f"{key} is no base64") from None
