"""Memory that a rank lends to its agent."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
from dataclasses import dataclass
from typing import Final

from meridian.door import _messages
from meridian.door._messages import Message

_PR_SET_PTRACER: Final = 0x59616D61


@dataclass(frozen=True, slots=True)
class GPUMemory:
    """A stretch of an allocation on a GPU that this process exports."""

    handle: bytes
    """64 bytes of cudaIpcGetMemHandle, which names the allocation."""
    uuid: bytes
    """16 bytes, the GPU's: its number is another in every process."""
    offset: int = 0
    """Of the first byte lent, within the allocation."""

    def __post_init__(self) -> None:
        """Refuse what cannot be a handle or a UUID."""
        if len(self.handle) != 64 or len(self.uuid) != 16:
            raise ValueError(
                f"a handle of {len(self.handle)} bytes and a UUID of {len(self.uuid)}, not 64 and 16"
            )


@dataclass(frozen=True, slots=True)
class Loan:
    """A sealed memfd, a stretch of this process's own memory, or one of a GPU's."""

    size: int
    more: bool
    """Another loan of this rank follows."""
    descriptor: int | None = None
    address: int = 0
    gpu: GPUMemory | None = None

    def message(self, agent_pid: int) -> Message:
        """Return the loan as the door has it, after making it possible."""
        m = _messages.Lend(size_bytes=self.size, more=self.more)
        if self.descriptor is not None:
            m.memfd.SetInParent()
        elif self.gpu is not None:
            m.cuda_ipc.handle = self.gpu.handle
            m.cuda_ipc.uuid = self.gpu.uuid
            m.cuda_ipc.offset = self.gpu.offset
        else:
            allow(agent_pid)
            m.borrowed.address = self.address
        return m


def sealed_memfd(size: int, name: str = "kv") -> int:
    """Return the descriptor of memory that can be lent: a memfd that cannot change its size."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    except BaseException:
        os.close(fd)
        raise
    return fd


def allow(agent_pid: int) -> None:
    """Let the agent reach this process's memory where the kernel asks for that (Yama)."""
    libc = ctypes.CDLL(None, use_errno=True)
    word = ctypes.c_ulong
    if libc.prctl(_PR_SET_PTRACER, word(agent_pid), word(0), word(0), word(0)) != 0:
        number = ctypes.get_errno()
        if number != errno.EINVAL:  # without Yama the call is unknown
            raise OSError(number, f"allowing the agent to reach this memory: {os.strerror(number)}")
