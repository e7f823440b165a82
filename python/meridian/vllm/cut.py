"""How vLLM's KV cache is cut over layers, groups, heads and blocks, as Meridian says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from meridian.door import Layer, Publication

NULL_BLOCK: Final = 0
"""vLLM's block that holds nothing."""


@dataclass(frozen=True, slots=True)
class CachedLayer:
    """One layer as vLLM has it."""

    name: str
    index: int
    group: int
    """Which of vLLM's groups of layers it is in: those of one group share block tables."""
    layer: Layer


@dataclass(frozen=True, slots=True)
class Cut:
    """What a publication does not say of vLLM: its own groups of layers."""

    publication: Publication
    groups: tuple[int, ...]
    """For each group of equal layers, in order of first layers, the group of vLLM's that it is."""

    @property
    def windows(self) -> tuple[int, ...]:
        """How far back the sliding windows reach, in tokens."""
        return tuple({layer.window_tokens for layer in self.publication.layers if layer.window_tokens})

    @property
    def blocks_tell_whose(self) -> bool:
        """Whether the number of a block says which request has it.

        Not where vLLM counts blocks in several groups, nor where a window moves
        on: then every request has the null block in front.
        """
        return len(set(self.groups)) == 1 and not self.windows

    def tables(self, block_ids: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
        """Return block tables for so many tokens, one for each group of equal layers.

        Where a sliding window has moved on, vLLM has the null block in front;
        nothing that is moved lies there. ValueError: something does, as where
        a request has gone on after these tokens.
        """
        count = -(-tokens // self.publication.block_tokens)
        tables = [list(block_ids[group][:count]) for group in self.groups]
        if any(len(table) < count for table in tables):
            raise ValueError(f"{tokens} tokens need {count} blocks, vLLM has {[len(t) for t in tables]}")
        for window, table in zip(self._window_of_each, tables, strict=True):
            if window and NULL_BLOCK in table[max(0, tokens - window) // self.publication.block_tokens :]:
                raise ValueError(f"vLLM has given up blocks that the last {window} of {tokens} tokens are in")
        return tables

    @property
    def _window_of_each(self) -> list[int]:
        """Return the window of each group of equal layers; 0: it sees all."""
        return [layer.window_tokens for layer in dict.fromkeys(self.publication.layers)]

    def edge_is_lost(self, tokens: int) -> bool:
        """Say whether a prompt's last token could not be computed again after a hand-off.

        A decode server computes it once more, to sample from it. It sees just
        as many tokens as the window has, while the first of them is one that
        vLLM gives up with the whole prompt computed: where a block ends there,
        it is gone.
        """
        block = self.publication.block_tokens
        return any(tokens >= window and (tokens - window + 1) % block == 0 for window in self.windows)


def arrange(layers: Sequence[CachedLayer]) -> tuple[list[CachedLayer], tuple[int, ...]]:
    """Return layers in their order, and for each group of equal ones the group of vLLM's that it is.

    ValueError: equal layers are in several of vLLM's groups, so that one block
    table cannot say where their tokens are.
    """
    ordered = sorted(layers, key=lambda layer: layer.index)
    if [layer.index for layer in ordered] != list(range(len(ordered))):
        raise ValueError(f"the layers with a KV cache are not numbered from 0: {[c.name for c in ordered]}")
    groups: dict[Layer, int] = {}
    for cached in ordered:
        if groups.setdefault(cached.layer, cached.group) != cached.group:
            raise ValueError(
                f"vLLM keeps equal layers in groups {groups[cached.layer]} and {cached.group}, "
                "with block tables of their own; start it with --disable-hybrid-kv-cache-manager"
            )
    return ordered, tuple(groups.values())


def in_memory(ordered: Sequence[CachedLayer]) -> list[CachedLayer]:
    """Return layers in the order in which an agent expects them in a rank's memory: equal ones together."""
    first: dict[Layer, int] = {}
    for cached in ordered:
        first.setdefault(cached.layer, len(first))
    return sorted(ordered, key=lambda cached: first[cached.layer])
