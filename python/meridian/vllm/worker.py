"""The side of the connector that is with one of vLLM's workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from meridian.door import Event, GPUMemory
from meridian.vllm.handoffs import Step
from meridian.vllm.memory import Region
from meridian.vllm.progress import Progress
from meridian.vllm.reports import Report, Reports

_NAP: Final = 0.002
"""How long a step in which nothing is computed waits, in seconds.

While blocks are held vLLM steps without end, and takes the cores that would
bring caches. A request that arrives meanwhile waits for the step.
"""

_WATCH: Final = 0.006
"""How long it waits where caches are on their way: most come in that time, and end it."""


_TELLS: Final = 8
"""How often in a step it is told how many layers are computed."""


class RankDoor(Protocol):
    """What this side asks of a Door."""

    def lend_borrowed(self, address: int, size: int, *, more: bool = ...) -> None: ...
    def lend_gpu(self, memory: GPUMemory, size: int, *, more: bool = ...) -> None: ...
    def poll_events(self, timeout: float = ...) -> list[Event]: ...
    def progress(self, transfer: bytes, layers: int, tokens: int = ...) -> None: ...
    def close(self, timeout: float = ...) -> None: ...


class ConnectorWorker:
    """Lends a rank's memory, and reports what has ended."""

    def __init__(self, door: RankDoor, layers: int = 0, progress: Progress | None = None) -> None:
        """Take the rank's door.

        `layers`: of the whole model, where this rank has all of them. `progress`:
        where layers are computed behind this thread's back, on a GPU.
        """
        self._door = door
        self._progress = progress
        self._layers = layers
        self._every = max(1, -(-layers // _TELLS))
        self._computing: tuple[tuple[bytes, int], ...] = ()
        self._reports = Reports()
        self._idle = False
        self._invalid_blocks: set[int] = set()

    def lend(self, regions: Sequence[Region]) -> None:
        """Lend the rank's KV cache, one region after the other."""
        for i, region in enumerate(regions, start=1):
            self._door.lend_borrowed(region.address, region.size, more=i < len(regions))

    def lend_gpu(self, exported: Sequence[tuple[GPUMemory, int]]) -> None:
        """Lend the rank's KV cache on a GPU, one stretch after the other, each with its size."""
        for i, (memory, size) in enumerate(exported, start=1):
            self._door.lend_gpu(memory, size, more=i < len(exported))

    def told(self, step: Step) -> None:
        """Hear what the connector's scheduler says, at the beginning of a step."""
        self._reports.told(step)
        self._idle = step.idle
        self._computing = step.computing

    def saved(self, layer: int) -> None:
        """Hear that this step has computed a layer, and all before it; on a GPU: that it is going to."""
        computed = layer + 1
        if not self._computing or (computed != self._layers and computed % self._every != 0):
            return
        transfers = self._computing
        if self._progress is None:
            self._tell(transfers, computed)
        else:
            self._progress.then(lambda: self._tell(transfers, computed))

    def _tell(self, transfers: Sequence[tuple[bytes, int]], computed: int) -> None:
        for transfer, tokens in transfers:
            self._door.progress(transfer, computed, tokens)

    def close(self, timeout: float) -> None:
        """Tell nothing more."""
        if self._progress is not None:
            self._progress.close(timeout)

    def report(self) -> Report:
        """Return what is over, at the end of a step."""
        for event in self._door.poll_events(self._patience()):
            self._reports.happened(event)
        report = self._reports.take()
        self._invalid_blocks |= report.invalid_blocks
        return report

    def _patience(self) -> float:
        if not self._idle or self._reports.ready:
            return 0.0
        return _WATCH if self._reports.waiting else _NAP

    def take_invalid_blocks(self) -> set[int]:
        """Return the blocks of failed loads that were reported. vLLM asks right after `report`."""
        invalid, self._invalid_blocks = self._invalid_blocks, set()
        return invalid
