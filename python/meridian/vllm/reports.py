"""What a worker reports to vLLM: each request once, and none that vLLM does not wait for."""

from __future__ import annotations

from dataclasses import dataclass, field

from meridian.door import Event, EventKind
from meridian.vllm.handoffs import Step, Watch


@dataclass(slots=True)
class Report:
    """What is over since the last report."""

    sent: set[str] = field(default_factory=set)
    received: set[str] = field(default_factory=set)
    failed: set[str] = field(default_factory=set)
    """Of those received, where no block tells it, or blocks are in doubt. vLLM begins them anew."""
    invalid_blocks: set[int] = field(default_factory=set)
    """Blocks of others that failed. vLLM goes on in front of them."""


class Reports:
    """What vLLM waits for on this worker."""

    def __init__(self) -> None:
        self._waiting: dict[str, Watch] = {}
        self._requests: dict[bytes, str] = {}
        self._next = Report()

    def told(self, step: Step) -> None:
        """Hear what the connector's scheduler says."""
        for request, watch in step.watches.items():
            self._waiting[request] = watch
            self._requests[watch.transfer] = request
        for request in step.landed:
            self._end(request, failed=False)
        for request in step.failed:
            self._end(request, failed=True)
        for request in step.left:
            self._end(request, failed=True, anew=True)
        self._next.sent.update(step.freed)

    def happened(self, event: Event) -> None:
        """Hear what the agent says to this rank.

        Only that a cache is there saves time; of everything else, and of what
        this rank has missed, the connector's scheduler tells.
        """
        if event.kind is EventKind.READY and event.accepted:
            request = self._requests.get(event.transfer)
            if request is not None:
                self._end(request, failed=False)

    def _end(self, request: str, *, failed: bool, anew: bool = False) -> None:
        """Report the end; `anew`: the request begins again, in other blocks than those it has."""
        watch = self._waiting.pop(request, None)
        if watch is None:
            return  # it was reported
        del self._requests[watch.transfer]
        self._next.received.add(request)
        if failed and watch.blocks and not anew:
            self._next.invalid_blocks.update(watch.blocks)
        elif failed:
            self._next.failed.add(request)

    @property
    def waiting(self) -> bool:
        """Whether vLLM waits for any request."""
        return bool(self._waiting)

    @property
    def ready(self) -> bool:
        """Whether there is anything to report."""
        return bool(self._next.sent or self._next.received)

    def take(self) -> Report:
        """Return what is to be reported now."""
        report, self._next = self._next, Report()
        return report
