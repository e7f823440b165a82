"""Waiting for what becomes true by itself: it is asked again and again, and never for ever."""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
import struct
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

Told = TypeVar("Told")


def until(
    what: str, true: Callable[[], Told], seconds: float = 60.0, *, said: Callable[[], object] | None = None
) -> Told:
    """Wait until something is true, and return it. A wait in vain tells what was `said`."""
    for pause in _pauses(seconds):
        if told := true():
            return told
        time.sleep(pause)
    return _at_last(what, true, seconds, said)


async def auntil(
    what: str, true: Callable[[], Told], seconds: float = 60.0, *, said: Callable[[], object] | None = None
) -> Told:
    """Wait while the loop runs on."""
    for pause in _pauses(seconds):
        if told := true():
            return told
        await asyncio.sleep(pause)
    return _at_last(what, true, seconds, said)


def _pauses(seconds: float) -> Iterator[float]:
    end, pause = time.monotonic() + seconds, 0.001
    while (left := end - time.monotonic()) > 0:
        yield min(pause, left)
        pause = min(2 * pause, 0.02)


def _at_last(what: str, true: Callable[[], Told], seconds: float, said: Callable[[], object] | None) -> Told:
    told = true()  # this process alone may have stood still
    assert told, f"not within {seconds:g} s: {what}" + (f": {said()}" if said else "")
    return told


def unread() -> int:
    """Return about how much of what this process has sent its peers have not read."""
    left = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            if stat.S_ISSOCK(os.stat(fd := int(link.name)).st_mode):
                left += struct.unpack("i", fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(4)))[0]
        except OSError:
            pass  # it was that of the folder, or listens
    return left
