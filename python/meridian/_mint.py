"""Tickets that an engine writes itself."""

from __future__ import annotations

from meridian._doorevent import DoorError
from meridian._doorproto import Message
from meridian.handoff import Offer
from meridian.publication import Scope
from meridian.ticket import NEVER, Home, Ticket


def mint(welcome: Message, offer: Offer, published: Scope) -> bytes:
    """Write the ticket of an offer to the agent that said `welcome`."""
    if not welcome.ticket_key:
        raise DoorError("unsupported", f"agent {welcome.agent} lets no engine write tickets")
    home = Home(welcome.agent, welcome.incarnation)
    scope = offer.scope.within(published)
    return Ticket(offer.transfer, home, offer.tokens, scope, NEVER).seal(welcome.ticket_key)
