"""Where a worker's KV cache lies, so that it can be lent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from meridian.vllm.cut import CachedLayer


@dataclass(frozen=True, slots=True)
class Region:
    """A stretch of this process's memory."""

    address: int
    size: int


@dataclass(frozen=True, slots=True)
class Share:
    """What a rank holds of a layer: [blocks, heads, tokens, K and V of a head], dense."""

    blocks: int
    block_tokens: int
    heads: int
    head_dim: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.blocks, self.heads, self.block_tokens, 2 * self.head_dim


def regions(
    layers: Sequence[CachedLayer], shares: Sequence[Share], caches: Mapping[str, Any]
) -> list[Region]:
    """Return the memory of a rank's layers in that order; neighbours are one region.

    ValueError names the layer, and what of its tensor is not as it was
    published.
    """
    return list(_joined(_region(c.name, s, caches) for c, s in zip(layers, shares, strict=True)))


def _region(name: str, share: Share, caches: Mapping[str, Any]) -> Region:
    tensor = caches.get(name)
    if tensor is None:
        raise ValueError(f"vLLM registers no KV cache for {name}, only for {', '.join(sorted(caches))}")
    if tensor.device.type != "cpu":
        raise ValueError(
            f"the KV cache of {name} is on {tensor.device}: so far only memory of the CPU can be lent; "
            "CUDA is planned"
        )
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    if shape != share.shape:
        raise ValueError(
            f"the KV cache of {name} has the shape {shape}, expected {share.shape}: "
            "blocks, heads, tokens, K and V"
        )
    dense = _dense(shape)
    if strides != dense:
        raise ValueError(f"the KV cache of {name} has the strides {strides}, expected {dense}: layout LBHNC")
    return Region(tensor.data_ptr(), shape[0] * strides[0] * tensor.element_size())


def _dense(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def _joined(found: Iterable[Region]) -> Iterable[Region]:
    before: Region | None = None
    for region in found:
        if before is not None and before.address + before.size == region.address:
            before = Region(before.address, before.size + region.size)
            continue
        if before is not None:
            yield before
        before = region
    if before is not None:
        yield before
