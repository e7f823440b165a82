"""A KV cache small enough to look at: where every number lies in the memory of which rank."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from meridian.door import Layer, Publication, Scope

LAYERS, HEADS, HEAD_DIM = 2, 4, 8


class Memory(Protocol):
    """A rank's memory, as bytes."""

    def __getitem__(self, at: slice, /) -> bytes: ...
    def __setitem__(self, at: slice, value: bytes, /) -> None: ...


@dataclass(frozen=True)
class Cut:
    """How an engine cuts and keeps the cache: fp32, layout LBHNC."""

    tp: int
    block_tokens: int
    blocks: int

    @property
    def rank_bytes(self) -> int:
        return LAYERS * self.blocks * (HEADS // self.tp) * self.block_tokens * 2 * HEAD_DIM * 4

    def publication(self, model: str = "m") -> Publication:
        layers = [Layer(kv_heads=HEADS, head_dim=HEAD_DIM)] * LAYERS
        scope = Scope(model=model)
        return Publication("fp32", layers, self.block_tokens, self.blocks, tp=self.tp, scope=scope)

    def table(self, tokens: int, first: int) -> list[int]:
        """Return blocks for so many tokens, in an order that no identity survives."""
        count = -(-tokens // self.block_tokens)
        return list(range(first, first + count))[::-1]

    def rows(self, tokens: int, table: list[int]) -> Iterator[tuple[int, slice, bytes]]:
        """Yield the rank, the place and the content of the K and V of each layer, head and token."""
        heads = HEADS // self.tp
        row_bytes = 2 * HEAD_DIM * 4
        for layer in range(LAYERS):
            for head in range(HEADS):
                for token in range(tokens):
                    block = table[token // self.block_tokens]
                    index = (layer * self.blocks + block) * heads + head % heads
                    start = (index * self.block_tokens + token % self.block_tokens) * row_bytes
                    values = array(
                        "f", (((layer * HEADS + head) * 1000 + token) * 16 + i for i in range(2 * HEAD_DIM))
                    )
                    yield head // heads, slice(start, start + row_bytes), values.tobytes()

    def fill(self, memory: list[Memory], tokens: int, table: list[int]) -> None:
        for rank, place, content in self.rows(tokens, table):
            memory[rank][place] = content

    def check(self, memory: list[Memory], tokens: int, table: list[int]) -> None:
        for rank, place, content in self.rows(tokens, table):
            assert bytes(memory[rank][place]) == content, f"rank {rank}, bytes {place.start} to {place.stop}"
