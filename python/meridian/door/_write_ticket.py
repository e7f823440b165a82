"""Tickets that an engine writes itself."""

from __future__ import annotations

from meridian.door._events import DoorError
from meridian.door._handoff import Offer
from meridian.door._messages import Message
from meridian.door._publication import Scope
from meridian.door.ticket import NEVER, Home, Ticket


def write_ticket(welcome: Message, offer: Offer, published: Scope) -> bytes:
    """Write the ticket of an offer to the agent that said `welcome`."""
    if not welcome.ticket_key:
        raise DoorError("unsupported", f"agent {welcome.agent} lets no engine write tickets")
    home = Home(welcome.agent, welcome.incarnation)
    scope = offer.scope.within(published)
    return Ticket(offer.transfer, home, offer.tokens, scope, NEVER).seal(welcome.ticket_key)
