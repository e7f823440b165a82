"""A connector's scheduler that keeps thoughts, with one request of vLLM and its blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vllmworld import BLOCK, CUT, SETTINGS, FakeDoor, Request

from meridian.door import CacheTerms, Event, EventKind
from meridian.vllm.ended_thoughts import EndedThoughts
from meridian.vllm.scheduler import ConnectorScheduler

END = 99
PROMPT = list(range(2 * BLOCK))
THOUGHT = [50 + at for at in range(5 * BLOCK)]
"""With its end five blocks, and a token of a sixth."""
BATCH = 2
TRANSFER = bytes(range(1, 17))
SETTLED = 4


class Pool:
    """vLLM's blocks, of which a test counts the references."""

    def __init__(self, count: int = 100, usage: float = 0.5) -> None:
        self.blocks: Sequence[int] = range(100)
        self.num_gpu_blocks = count
        self.usage = usage
        self.free = count
        self.references: dict[int, int] = {}

    def touch(self, blocks: Sequence[int]) -> None:
        for block in blocks:
            self.references[block] = self.references.get(block, 0) + 1

    def free_blocks(self, ordered_blocks: Sequence[int]) -> None:
        for block in ordered_blocks:
            self.references[block] -= 1

    def get_usage(self) -> float:
        return self.usage

    def get_num_free_blocks(self) -> int:
        return self.free

    @property
    def pinned(self) -> list[int]:
        return sorted(block for block, count in self.references.items() if count)


class World:
    """A connector's scheduler that keeps thoughts, and one request of vLLM."""

    def __init__(self, pool: Pool | None = None, ends: Any = ((END,),), pressure: bool = False) -> None:
        self.now = 0.0
        self.pool = pool or Pool()
        self.connector_scheduler = ConnectorScheduler(
            SETTINGS, CUT, produces=True, consumes=True, clock=lambda: self.now
        )
        self.door = FakeDoor(cache=CacheTerms(BLOCK, 0.0))
        self.connector_scheduler.attach(self.door)
        self.thoughts = EndedThoughts(
            ends,
            block_tokens=BLOCK,
            batch=BATCH,
            pool=self.pool,
            under_pressure=pressure,
            settled_after=SETTLED,
            clock=lambda: self.now,
        )
        self.connector_scheduler.keep_thoughts(self.thoughts)
        self.request = Request("r", PROMPT, None, max_tokens=100)
        self.blocks = [20 + at for at in range(2)]
        self.connector_scheduler.allocated(self.request, (list(self.blocks),), 0)

    def say(self, *tokens: int) -> None:
        """Let the request say tokens, a step each."""
        for token in tokens:
            had = len(self.request.all_token_ids) - (1 if self.request.answer else 0)
            new = []
            while len(self.blocks) * BLOCK < len(self.request.all_token_ids) + 1:
                new.append(20 + len(self.blocks))
                self.blocks.append(new[-1])
            self.follow(had, new)
            self.connector_scheduler.step(computes={"r": 1})
            self.request.answer.append(token)

    def follow(self, had: int, new: Sequence[int] = ()) -> None:
        """Let a step begin that finds so many tokens computed, and gets the request more blocks."""
        self.thoughts.follow("r", had, (new,) if new else None, self.connector_scheduler.keep_running)

    @property
    def kept(self) -> list[int]:
        """Return how many tokens each Keep had."""
        return [len(list(keep.tokens)) for keep, _ in self.door.keeps]

    def free(self) -> None:
        self.connector_scheduler.happened(Event(EventKind.FREED, self.door.keeps[-1][0].transfer, False))

    def lose_blocks(self) -> None:
        self.request.num_preemptions += 1
        self.request.num_computed_tokens = 0
