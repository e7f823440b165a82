"""What has become of hand-offs, counted between two looks of vLLM's metrics."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Final

from meridian.vllm.handoffs import Ending

GOVERNOR: Final = ("late", "alone", "failed_open", "released", "preempted", "faults")
"""What is told of `meridian.vllm.governing.Counts`."""


class Since:
    """What numbers have grown by since the last look."""

    def __init__(self, of: object, names: tuple[str, ...]) -> None:
        self._of, self._seen = of, dict.fromkeys(names, 0)

    def take(self) -> dict[str, int]:
        """Return those that have grown, and by how much."""
        grown = {name: getattr(self._of, name) - seen for name, seen in self._seen.items()}
        for name, more in grown.items():
            self._seen[name] += more
        return {name: more for name, more in grown.items() if more}


@dataclass(slots=True)
class Counters:
    """Counts, and one entry for each cache that arrived."""

    ready_seconds: list[float] = field(default_factory=list)
    ready_tokens: list[int] = field(default_factory=list)
    failed: int = 0
    """Accepts that a client still waited for."""
    abandoned: int = 0
    """Accepts that no client waited for any more."""
    offered: int = 0
    """Offers that have ended, taken or not."""
    ahead: int = 0
    """Offers that were made while the prompt was computed."""
    chunked: int = 0
    """Of these, the offers that were made before the prompt's last chunk."""
    declined: int = 0
    """Prompts that could not be offered."""
    found_tokens: int = 0
    """Tokens that came from the cell's cache."""
    recalled_tokens: int = 0
    """Of these, those that came for requests which had lost their blocks."""
    kept_thoughts: int = 0
    """Thoughts that the agent has taken while their requests went on."""
    doubtful_blocks: int = 0
    """Blocks into which an agent may write that says nothing, more or fewer."""
    kept: int = 0
    """Requests whose cache the cell has, after it was asked to keep it."""
    not_kept: int = 0
    """Requests whose cache the cell was asked to keep, and has not taken."""

    def count(self, ending: Ending) -> None:
        """Add one that has ended."""
        if ending.running:
            self.kept_thoughts += ending.problem is None and not ending.abandoned
        elif not ending.accepted and ending.shared:
            self.kept += ending.problem is None
            self.not_kept += ending.problem is not None
        elif not ending.accepted:
            self.offered += 1
        elif ending.problem is None and ending.shared:
            self.found_tokens += ending.tokens
        elif ending.problem is None:
            self.ready_seconds.append(ending.seconds)
            self.ready_tokens.append(ending.tokens)
        elif ending.abandoned:
            self.abandoned += 1
        else:
            self.failed += 1

    def take(self) -> dict[str, Any]:
        """Return what was counted, for pickling, and begin anew; empty if that is nothing."""
        counted = {name: count for name, count in dataclasses.asdict(self).items() if count}
        for name in counted:
            setattr(self, name, [] if isinstance(counted[name], list) else 0)
        return counted
