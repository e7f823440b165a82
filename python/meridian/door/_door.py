"""The engine door for engines that run on threads."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Final, TypeVar

from meridian._version import __version__
from meridian.door import _messages
from meridian.door._events import RANK_EVENTS, DoorError, Event, Mailbox
from meridian.door._handoff import Accept, Offer
from meridian.door._memory import GPUMemory, Loan
from meridian.door._messages import Message
from meridian.door._one_way import OneWay
from meridian.door._prefix import CacheTerms, Find, Found, Keep, found, must_keep_prefixes, terms_of
from meridian.door._publication import Control, Publication, Rank, Scope
from meridian.door._registration import Registration
from meridian.door._statements import Published, hello
from meridian.door._write_ticket import write_ticket

_log: Final = logging.getLogger("meridian.door")
_T = TypeVar("_T")


def socket_path(state_dir: str | os.PathLike[str], agent: str) -> str:
    """Return where the agent of that name opens its door."""
    return os.path.join(state_dir, f"door-{agent}.sock")


def new_transfer() -> bytes:
    """Return a transfer's id: a new one for every offer."""
    return os.urandom(16)


class Door(OneWay):
    """One connection of an engine. Its methods may be called from several threads.

    Nothing here waits for long: a request that the agent does not answer in
    `answer_timeout` seconds fails, and the connection is ended for it.
    """

    def __init__(
        self,
        socket: str | os.PathLike[str],
        engine: str,
        *,
        control: Control | None = None,
        rank: Rank | None = None,
        on_event: Callable[[Event], None] | None = None,
        software: str = f"meridian-python {__version__}",
        answer_timeout: float = 10.0,
    ) -> None:
        """Say who opens which door; nothing is sent before `open`.

        With `on_event`, a thread of the Door calls it with one event after the
        other; it must not block. Without, events wait for `poll_events`.
        """
        first = hello(engine, software, control, rank)
        self._on_event = on_event
        self._mailbox = Mailbox(RANK_EVENTS if rank else None)
        self._registration = Registration(os.fspath(socket), first, self._told, answer_timeout)
        self._lent: list[int] = []
        self._scope = Scope()  # what was published of every request
        self._closing = threading.Lock()  # held around close
        self._closed = False

    def open(self, required: bool = True) -> None:
        """Register with the agent.

        Unless that is `required`, an agent that is not there yet is no error, nor
        is one that refuses what is lent or published: it is tried again.
        A Door opens once: after an error, and after `close`, make another.
        """
        try:
            self._registration.open(required)
        except BaseException:
            self.close()
            raise

    def close(self, timeout: float = 60.0) -> None:
        """Take this part of the engine away; when it returns the memory is the engine's own again.

        The agent fences the whole engine when one part of it leaves. After an
        error it may be called again.
        """
        with self._closing:
            self._registration.close(timeout)
            if self._closed:
                return
            self._closed = True
            self._mailbox.close()
            for fd in self._lent:
                os.close(fd)

    def __enter__(self) -> Door:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    @property
    def features(self) -> frozenset[str]:
        """What this client and the agent that it is registered with both can do: words of docs/wire.md."""
        return self._registration.features

    @property
    def serving(self) -> bool:
        """Whether the engine is registered and complete now."""
        return self._registration.serving

    def wait_serving(self, timeout: float = 20.0) -> None:
        """Wait until the engine is registered and complete."""
        self._registration.wait_serving(timeout)

    # What the connection is. It is said to an agent that is there now, and again to one that comes back.

    def lend_memfd(self, fd: int, size: int | None = None, *, more: bool = False) -> None:
        """Lend a sealed memfd, whole. The descriptor stays the caller's.

        All that a rank lends, in order, is its KV memory; `more` says that
        another part follows.
        """
        own = os.dup(fd)
        self._lent.append(own)
        self._registration.state(Loan(os.fstat(own).st_size if size is None else size, more, descriptor=own))

    def lend_borrowed(self, address: int, size: int, *, more: bool = False) -> None:
        """Lend memory of this process. It must stay where it is until `close` has returned."""
        self._registration.state(Loan(size, more, address=address))

    def lend_gpu(self, memory: GPUMemory, size: int, *, more: bool = False) -> None:
        """Lend memory of a GPU. It must stay allocated until `close` has returned."""
        self._registration.state(Loan(size, more, gpu=memory))

    def publish(self, publication: Publication) -> None:
        """Tell what the engine caches and how. It serves once every rank has lent its memory."""
        self._registration.state(Published(publication))
        self._scope = publication.scope

    # What control asks for.

    def offer(self, offer: Offer) -> bytes:
        """Let a request's cache be taken, and return the ticket for the decode engine.

        After an error the blocks are the engine's, but for `no_answer`: then
        they are with the event FREED.
        """
        self._registration.must_not_be_told()
        return self.offer_soon(offer).result()

    def offer_soon(self, offer: Offer) -> Future[bytes]:
        """Offer without waiting for the answer."""
        asked = self._registration.ask(offer.message(), holds=(offer.transfer, False))
        return _then(asked, lambda reply: reply.ticket)

    def write_ticket(self, offer: Offer) -> bytes:
        """Write the ticket of an offer without asking the agent. Only the offer makes it worth anything.

        It holds as long as the offer does. DoorError: the engine does not serve.
        """
        return write_ticket(self._registration.welcome(), offer, self._scope)

    def accept(self, accept: Accept) -> bytes:
        """Ask for the cache of a ticket, and return the id of the transfer, of which events tell.

        The first of them may be told before this returns; `transfer_of` reads
        the id from the ticket. After an error the blocks are the engine's, but
        for `no_answer`: then they are with the event FENCED.
        """
        self._registration.must_not_be_told()
        return self.accept_soon(accept).result()

    def accept_soon(self, accept: Accept) -> Future[bytes]:
        """Accept without waiting for the answer."""
        return _then(self._registration.ask(accept.message()), lambda reply: reply.transfer)

    @property
    def cache_terms(self) -> CacheTerms:
        """What the agent says of the prefixes that it keeps. DoorError: it keeps none, or is not there."""
        must_keep_prefixes(self.features)
        return terms_of(self._registration.welcome())

    def keep(self, keep: Keep) -> None:
        """Let the cache of a prefix be kept.

        After an error the blocks are the engine's, but for `no_answer`: then
        they are with the event FREED.
        """
        self._registration.must_not_be_told()
        self.keep_soon(keep).result()

    def keep_soon(self, keep: Keep) -> Future[None]:
        """Let the cache of a prefix be kept without waiting for the answer."""
        must_keep_prefixes(self.features)
        return _then(self._registration.ask(keep.message(), holds=(keep.transfer, False)), lambda _: None)

    def find(self, find: Find) -> Found:
        """Look for a prefix. After an error there is none."""
        self._registration.must_not_be_told()
        return self.find_soon(find).result()

    def find_soon(self, find: Find) -> Future[Found]:
        """Look for a prefix without waiting for the answer."""
        must_keep_prefixes(self.features)
        return _then(self._registration.ask(find.message()), found)

    def withdraw_offer(self, transfer: bytes) -> None:
        """Take an offer or a Keep back. Its blocks are the engine's again with FREED, or were already."""
        self._cancel(_messages.Cancel(offered=transfer))

    def withdraw_offer_soon(self, transfer: bytes) -> Future[None]:
        """Take an offer back without waiting for the answer."""
        return self._cancel_soon(_messages.Cancel(offered=transfer))

    def cancel_accept(self, transfer: bytes) -> None:
        """Give an accept up. Its blocks are the engine's again with FREED, or were already."""
        self._cancel(_messages.Cancel(accepted=transfer))

    def cancel_accept_soon(self, transfer: bytes) -> Future[None]:
        """Give an accept up without waiting for the answer."""
        return self._cancel_soon(_messages.Cancel(accepted=transfer))

    def decline_ticket(self, ticket: bytes) -> None:
        """Give a ticket back that will not be used."""
        self._cancel(_messages.Cancel(unused_ticket=ticket))

    def decline_ticket_soon(self, ticket: bytes) -> Future[None]:
        """Give a ticket back without waiting for the answer."""
        return self._cancel_soon(_messages.Cancel(unused_ticket=ticket))

    def _cancel_soon(self, message: Message) -> Future[None]:
        return _then(self._registration.ask(message), lambda _: None)

    def _cancel(self, message: Message) -> None:
        self._registration.must_not_be_told()
        try:
            self._cancel_soon(message).result()
        except DoorError as error:
            if error.code != "unknown":  # else it has ended meanwhile
                raise

    def _say(self, message: Message) -> None:
        self._registration.say(message)

    def poll_events(self, timeout: float = 0.0) -> list[Event]:
        """Return the events that wait, in order; wait up to `timeout` seconds for the first.

        Those that `close` has told can be taken after it.
        """
        return self._mailbox.take(timeout)

    def fileno(self) -> int:
        """Return a descriptor that is readable while events wait for `poll_events`."""
        return self._mailbox.fileno()

    def _told(self, event: Event) -> None:
        if self._on_event is None:
            self._mailbox.put(event)
            return
        try:
            self._on_event(event)
        except Exception:
            _log.exception("on_event failed with %s", event)


def _then(asked: Future[Message], pick: Callable[[Message], _T]) -> Future[_T]:
    """Return the future of what is picked from an answer."""
    picked: Future[_T] = Future()
    picked.set_running_or_notify_cancel()

    def answered(future: Future[Message]) -> None:
        error = future.exception()
        if error is not None:
            picked.set_exception(error)
        else:
            picked.set_result(pick(future.result()))

    asked.add_done_callback(answered)
    return picked
