"""Tickets are made as the Go program makes them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from conftest import TESTDATA

from meridian.door import Scope
from meridian.door.ticket import Home, Ticket, transfer_of

VECTORS: list[dict[str, Any]] = json.loads((TESTDATA / "ticket" / "tickets.json").read_text())


def ticket_of(vector: dict[str, Any]) -> Ticket:
    return Ticket(
        bytes.fromhex(vector["transfer"]),
        Home(vector["home"], bytes.fromhex(vector["incarnation"])),
        vector["tokens"],
        Scope(vector["model"], vector["revision"], vector["adapter"], vector["media"], vector["salt"]),
        vector["expires_us"],
    )


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["about"])
def test_vector(vector: dict[str, Any]) -> None:
    sealed = ticket_of(vector).seal(bytes.fromhex(vector["key"]))
    assert sealed.hex() == vector["ticket"]
    assert transfer_of(sealed).hex() == vector["transfer"]


def test_a_promise_has_a_transfer_where_a_ticket_has_it() -> None:
    """What trust.Promise writes; the rest is for agents."""
    transfer = bytes(range(16))
    promise = b"MRDP\x01" + transfer + bytes(16) + b"\x04home" + bytes(32)
    assert transfer_of(promise) == transfer
    for wrong in (b"MRDP\x02" + promise[5:], promise[:20], b"MRDP"):
        with pytest.raises(ValueError, match="no ticket"):
            transfer_of(wrong)


def test_what_is_no_ticket_has_no_transfer() -> None:
    sealed = bytes.fromhex(VECTORS[0]["ticket"])
    for wrong in (b"", b"no ticket", sealed[:20], b"X" + sealed[1:], sealed[:4] + b"\x02" + sealed[5:]):
        with pytest.raises(ValueError, match="no ticket"):
            transfer_of(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        Ticket(b"short", Home("p", bytes(16)), [1], Scope(), 0),
        Ticket(bytes(16), Home("p", b"short"), [1], Scope(), 0),
        Ticket(bytes(16), Home("p", bytes(16)), [1], Scope(), -1),
        Ticket(bytes(16), Home("p", bytes(16)), [1], Scope(), 1 << 63),
        Ticket(bytes(16), Home("n" * 256, bytes(16)), [1], Scope(), 0),
        Ticket(bytes(16), Home("p", bytes(16)), [-1], Scope(), 0),
        Ticket(bytes(16), Home("p", bytes(16)), [1 << 32], Scope(), 0),
    ],
    ids=["transfer", "incarnation", "past", "future", "name", "negative token", "large token"],
)
def test_what_cannot_be_sealed(wrong: Ticket) -> None:
    with pytest.raises((ValueError, OverflowError)):
        wrong.seal(bytes(32))


def test_the_door_needs_protobuf_alone() -> None:
    program = (
        "import sys; sys.modules['blake3'] = sys.modules['tomli'] = None; from meridian.door import Door"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
