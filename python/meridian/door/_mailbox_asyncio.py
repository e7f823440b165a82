"""Events that wait to be taken by tasks."""

from __future__ import annotations

import asyncio
from collections import deque

from meridian.door._events import Event


class AsyncMailbox:
    """Iterates over events as they come. Each is taken once, by one iterator; the end is that of the door.

    A task that is cancelled while it waits has taken nothing.
    """

    def __init__(self, limit: int | None) -> None:
        """Keep the last `limit` events; None: all."""
        self._events: deque[Event] = deque(maxlen=limit)
        self._some = asyncio.Event()  # set while any wait, and from the end on
        self._closed = False

    def __len__(self) -> int:
        return len(self._events)

    def put(self, event: Event) -> None:
        """Add an event."""
        self._events.append(event)
        self._some.set()

    def close(self) -> None:
        """End the iteration after what waits."""
        self._closed = True
        self._some.set()

    def __aiter__(self) -> AsyncMailbox:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._closed:
                raise StopAsyncIteration
            self._some.clear()
            await self._some.wait()
        return self._events.popleft()
