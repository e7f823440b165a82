"""Engines that tests run in their own process."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import time
from pathlib import Path
from typing import cast

from kvcache import Cut, Memory
from processes import PATIENCE

from meridian.door import Accept, Control, Door, Event, EventKind, Offer, Rank, sealed_memfd

TOKENS = list(range(100, 140))
PREFILL = Cut(tp=1, block_tokens=4, blocks=128)
DECODE = Cut(tp=2, block_tokens=16, blocks=16)


class Engine:
    """An engine whose scheduler and ranks are all in this process."""

    def __init__(
        self,
        socket: Path,
        name: str,
        cut: Cut,
        *,
        borrow: bool = False,
        answer_timeout: float = 60.0,
        patient: bool = False,
    ) -> None:
        self.cut = cut
        self.events: list[Event] = []
        self.memory: list[Memory] = []
        self._open = contextlib.ExitStack()
        self.control = Door(
            socket, name, control=Control(role="both", model="m"), answer_timeout=answer_timeout
        )
        self.ranks = [Door(socket, name, rank=Rank(index, cut.tp)) for index in range(cut.tp)]
        with contextlib.ExitStack() as undo:
            undo.callback(self.close)
            for door in (self.control, *self.ranks):
                self._open.callback(door.close)
            for door in (self.control, *self.ranks):
                door.open(required=not patient)
            for door in self.ranks:
                self._lend(door, borrow)
            self.control.publish(cut.publication())
            undo.pop_all()

    def _lend(self, door: Door, borrow: bool) -> None:
        size = self.cut.rank_bytes
        if borrow:
            buffer = (ctypes.c_char * size)()
            door.lend_borrowed(ctypes.addressof(buffer), size)
            self.memory.append(cast(Memory, buffer))
            return
        fd = sealed_memfd(size)
        door.lend_memfd(fd)
        memory = mmap.mmap(fd, size)
        self._open.callback(memory.close)
        self.memory.append(memory)
        os.close(fd)

    def close(self) -> None:
        self._open.close()

    def __enter__(self) -> Engine:
        self.control.wait_serving()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def offer(self, transfer: bytes, first: int = 0, keep: float = 0.0) -> bytes:
        table = self.cut.table(len(TOKENS), first)
        return self.control.offer(Offer(transfer, TOKENS, [table], layers=2, keep=keep))

    def accept(self, ticket: bytes, first: int = 0) -> bytes:
        return self.control.accept(Accept(ticket, TOKENS, [self.cut.table(len(TOKENS), first)]))

    def until(self, *kinds: EventKind) -> list[Event]:
        """Wait for events of these kinds, in this order, and return them."""
        return until(self.control, self.events, *kinds)


def until(door: Door, events: list[Event], *kinds: EventKind) -> list[Event]:
    end = time.monotonic() + PATIENCE
    while len(events) < len(kinds):
        left = end - time.monotonic()
        assert left > 0, f"waiting for {kinds}, got {events}"
        events += door.poll_events(left)
    taken, events[: len(kinds)] = events[: len(kinds)], []
    assert [event.kind for event in taken] == list(kinds), taken
    return taken
