"""The engine door for engines that run on asyncio.

`AsyncDoor` is to tasks what `Door` is to threads: the same
conversation, the same nouns, which are those of `meridian.door`::

    async with AsyncDoor(socket, "engine-1", control=Control(role="decode")) as control:
        await control.publish(publication)
        await control.wait_serving()
        transfer = await control.accept(Accept(ticket, token_ids, [block_table]))
        async for event in control.events():
            print(event.kind, event.transfer, event.problem)

No thread is started, and one task for each door, for which `close` waits.

A call that is cancelled, or whose `timeout` passes, ends at once and leaves the
connection as it is. What it began is taken back: of an offer FREED tells when the
blocks are the engine's again, of an accept READY, or FAILED and FREED. Events tell
that in every case, also where nothing had been sent yet, or the agent refuses later;
only a task that was cancelled before it began has asked for nothing.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from types import TracebackType

from meridian._version import __version__
from meridian.door import _messages
from meridian.door._events import RANK_EVENTS, DoorError, Event
from meridian.door._handoff import Accept, Offer
from meridian.door._mailbox_asyncio import AsyncMailbox
from meridian.door._memory import GPUMemory, Loan
from meridian.door._messages import Message
from meridian.door._one_way import OneWay
from meridian.door._outstanding import HandOff
from meridian.door._prefix import CacheTerms, Find, Found, Keep, found, must_keep_prefixes, terms_of
from meridian.door._publication import Control, Publication, Rank, Scope
from meridian.door._registration_asyncio import AsyncRegistration
from meridian.door._statements import Published, hello
from meridian.door._write_ticket import write_ticket
from meridian.door.ticket import transfer_of


class AsyncDoor(OneWay):
    """One connection of an engine, in one event loop. Many tasks may use it at once.

    Nothing here waits for long: a request that the agent does not answer in
    `answer_timeout` seconds fails with `no_answer`, and the connection is ended
    for it. The `timeout` of a call, in seconds, ends only that call, with `timeout`.
    """

    def __init__(
        self,
        socket: str | os.PathLike[str],
        engine: str,
        *,
        control: Control | None = None,
        rank: Rank | None = None,
        software: str = f"meridian-python {__version__}",
        answer_timeout: float = 10.0,
        max_events: int = RANK_EVENTS,
    ) -> None:
        """Say who opens which door; nothing is sent before `open`.

        No event of control is lost. So offers and accepts are refused with `busy`
        while `max_events` hand-offs are under way or events wait to be taken, and
        a lost agent is not registered with again before some are taken. Of the
        events of a rank the last `max_events` are kept.
        """
        if max_events < 1:
            raise ValueError(f"max_events is {max_events}; at least one event must be able to wait")
        self._mailbox = AsyncMailbox(max_events if rank else None)
        self._registration = AsyncRegistration(
            os.fspath(socket),
            hello(engine, software, control, rank),
            self._mailbox,
            answer_timeout,
            max_events if control else None,
        )
        self._lent: list[int] = []
        self._scope = Scope()  # what was published of every request

    async def open(self, required: bool = True) -> None:
        """Register with the agent.

        Unless that is `required`, an agent that is not there yet is no error, nor
        is one that refuses what is lent or published: it is tried again.
        A door opens once: after an error, and after `close`, make another.
        """
        self._registration.must_be_new()
        try:
            await self._registration.open(required)
        except BaseException:
            await self.close()
            raise

    async def close(self, timeout: float = 60.0) -> None:
        """Take this part of the engine away; when it returns the memory is the engine's own again.

        The agent fences the whole engine when one part of it leaves. After an
        error, and when it was cancelled, it may be called again.
        """
        await self._registration.close(timeout)
        while self._lent:
            os.close(self._lent.pop())

    async def __aenter__(self) -> AsyncDoor:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def features(self) -> frozenset[str]:
        """What this client and the agent that it is registered with both can do: words of docs/wire.md."""
        return self._registration.features

    @property
    def serving(self) -> bool:
        """Whether the engine is registered and complete now."""
        return self._registration.serving

    async def wait_serving(self, timeout: float = 20.0) -> None:
        """Wait until the engine is registered and complete."""
        await self._registration.wait_serving(timeout)

    def events(self) -> AsyncIterator[Event]:
        """Iterate over events as they come, in order, up to the last that `close` tells.

        Each event is taken once, by one iterator. It is safe to cancel: a task
        that waits for an event has taken none.
        """
        return self._mailbox

    # What the connection is. It is said to an agent that is there now, and again to one that comes back.
    # A call that is cancelled has said it all the same.

    async def lend_memfd(
        self, fd: int, size: int | None = None, *, more: bool = False, timeout: float | None = None
    ) -> None:
        """Lend a sealed memfd, whole. The descriptor stays the caller's.

        All that a rank lends, in order, is its KV memory; `more` says that
        another part follows.
        """
        own = os.dup(fd)
        self._lent.append(own)
        loan = Loan(os.fstat(own).st_size if size is None else size, more, descriptor=own)
        try:
            await self._registration.state(loan, timeout)
        except DoorError as error:
            if error.code != "timeout" and own in self._lent:  # else it is said again
                self._lent.remove(own)
                os.close(own)
            raise

    async def lend_borrowed(
        self, address: int, size: int, *, more: bool = False, timeout: float | None = None
    ) -> None:
        """Lend memory of this process. It must stay where it is until `close` has returned."""
        await self._registration.state(Loan(size, more, address=address), timeout)

    async def lend_gpu(
        self, memory: GPUMemory, size: int, *, more: bool = False, timeout: float | None = None
    ) -> None:
        """Lend memory of a GPU. It must stay allocated until `close` has returned."""
        await self._registration.state(Loan(size, more, gpu=memory), timeout)

    async def publish(self, publication: Publication, *, timeout: float | None = None) -> None:
        """Tell what the engine caches and how. It serves once every rank has lent its memory."""
        await self._registration.state(Published(publication), timeout)
        self._scope = publication.scope

    # What control asks for.

    async def offer(self, offer: Offer, *, timeout: float | None = None) -> bytes:
        """Let a request's cache be taken, and return the ticket for the decode engine.

        After an error the blocks are the engine's, but for `no_answer` and
        `timeout`: then they are with the event FREED.
        """
        reply = await self._registration.ask(offer.message(), (offer.transfer, False), timeout)
        ticket: bytes = reply.ticket
        return ticket

    def write_ticket(self, offer: Offer) -> bytes:
        """Write the ticket of an offer without asking the agent. Only the offer makes it worth anything.

        It holds as long as the offer does. DoorError: the engine does not serve.
        """
        return write_ticket(self._registration.welcome(), offer, self._scope)

    async def accept(self, accept: Accept, *, timeout: float | None = None) -> bytes:
        """Ask for the cache of a ticket, and return the id of the transfer, of which events tell.

        The first of them may be taken before this returns; `transfer_of` reads
        the id from the ticket. After an error the blocks are the engine's, but
        for `no_answer` and `timeout`: then they are with the event READY or FREED.
        """
        reply = await self._registration.ask(accept.message(), _handoff_of(accept.ticket), timeout)
        transfer: bytes = reply.transfer
        return transfer

    @property
    def cache_terms(self) -> CacheTerms:
        """What the agent says of the prefixes that it keeps. DoorError: it keeps none, or is not there."""
        must_keep_prefixes(self.features)
        return terms_of(self._registration.welcome())

    async def keep(self, keep: Keep, *, timeout: float | None = None) -> None:
        """Let the cache of a prefix be kept.

        After an error the blocks are the engine's, but for `no_answer` and
        `timeout`: then they are with the event FREED.
        """
        must_keep_prefixes(self.features)
        await self._registration.ask(keep.message(), (keep.transfer, False), timeout)

    async def find(self, find: Find, *, timeout: float | None = None) -> Found:
        """Look for a prefix. After an error there is none; what is found too late is given back."""
        must_keep_prefixes(self.features)
        return found(await self._registration.ask(find.message(), timeout=timeout))

    async def withdraw_offer(self, transfer: bytes, *, timeout: float | None = None) -> None:
        """Take an offer or a Keep back. Its blocks are the engine's again with FREED, or were already."""
        await self._cancel(_messages.Cancel(offered=transfer), timeout)

    async def cancel_accept(self, transfer: bytes, *, timeout: float | None = None) -> None:
        """Give an accept up. Its blocks are the engine's again with FREED, or were already."""
        await self._cancel(_messages.Cancel(accepted=transfer), timeout)

    async def decline_ticket(self, ticket: bytes, *, timeout: float | None = None) -> None:
        """Give a ticket back that will not be used."""
        await self._cancel(_messages.Cancel(unused_ticket=ticket), timeout)

    async def _cancel(self, message: Message, timeout: float | None) -> None:
        try:
            await self._registration.ask(message, timeout=timeout)
        except DoorError as error:
            if error.code != "unknown":  # else it has ended meanwhile
                raise

    def _say(self, message: Message) -> None:
        self._registration.say(message)


def _handoff_of(ticket: bytes) -> HandOff | None:
    try:
        return transfer_of(ticket), True
    except ValueError:  # the agent will say so, and no block is out for it
        return None
