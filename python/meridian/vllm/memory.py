"""Where a worker's KV cache lies, so that it can be lent."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from meridian.vllm.cut import CachedLayer

_KINDS: Final = ("cpu", "cuda")


@dataclass(frozen=True, slots=True)
class Region:
    """A stretch of memory that this process has allocated, its own or a GPU's."""

    address: int
    size: int


@dataclass(frozen=True, slots=True)
class Share:
    """What a rank holds of a layer."""

    blocks: int
    block_tokens: int
    heads: int
    head_dim: int
    latent: bool = False
    """Whether one vector is kept of a token, and no K and V of heads."""

    def extents(self, layers: int) -> dict[str, int]:
        """Return how long the axes of so many such layers are, as layouts name them."""
        return {
            **{"L": layers, "B": self.blocks, "H": self.heads},
            **{"N": self.block_tokens, "F": 1 if self.latent else 2, "D": self.head_dim},
        }


@dataclass(frozen=True, slots=True)
class Cache:
    """What a worker has registered, as it was published."""

    layers: Sequence[CachedLayer]
    """In the order of their memory: equal ones together."""
    shares: Sequence[Share]
    layout: str
    tensors: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """Say what memory it is: cpu or cuda."""
        kinds = {str(self._tensor(cached.name).device.type) for cached in self.layers}
        if len(kinds) > 1 or not kinds <= set(_KINDS):
            raise ValueError(
                f"the KV cache is in memory of {', '.join(sorted(kinds))}: lent is that of {_OR}"
            )
        return kinds.pop()

    def regions(self) -> list[Region]:
        """Return its memory in the order of layers; neighbours are one region.

        ValueError names the layer, and what of its tensor is not as it was
        published.
        """
        return list(_joined(self._found()))

    def _found(self) -> Iterator[tuple[int, Region]]:
        """Go through regions, each with the allocation that it is of."""
        pairs = zip(self.layers, self.shares, strict=True)
        for _, equal in itertools.groupby(pairs, key=lambda pair: (pair[0].layer, pair[1])):
            group = list(equal)
            if _axes(self.layout)[0] == "L":  # each may be wherever it is
                for cached, share in group:
                    yield self._region([cached.name], share)
            else:
                yield self._region([cached.name for cached, _ in group], group[0][1])

    def _region(self, names: Sequence[str], share: Share) -> tuple[int, Region]:
        """Return the one stretch that these layers are in."""
        extents = share.extents(len(names))
        expected = dense(_axes(self.layout), extents)
        first = self._tensor(names[0])
        size: int = first.element_size()
        for number, name in enumerate(names):
            tensor = self._tensor(name)
            _check_strides(name, tensor, share, expected, self.layout)
            wanted = first.data_ptr() + number * expected["L"] * size
            if tensor.data_ptr() != wanted:
                raise ValueError(
                    f"the KV cache of {name} begins at {tensor.data_ptr():#x}, expected {wanted:#x}: "
                    f"layout {self.layout}"
                )
        length = math.prod(extents.values()) * size
        return _allocation(first), Region(first.data_ptr(), length)

    def _tensor(self, name: str) -> Any:
        tensor = self.tensors.get(name)
        if tensor is None:
            known = ", ".join(sorted(self.tensors))
            raise ValueError(f"vLLM registers no KV cache for {name}, only for {known}")
        return tensor


_OR: Final = " or ".join(_KINDS)


def dense(axes: str, extents: Mapping[str, int]) -> dict[str, int]:
    """Return how many elements apart neighbours on each axis are, where the last axis is the fastest."""
    strides, step = {}, 1
    for axis in reversed(axes):
        strides[axis] = step
        step *= extents[axis]
    return strides


def _axes(layout: str) -> str:
    return layout.replace("C", "FD")  # vLLM's C is K, then V of a token and head


def _check_strides(name: str, tensor: Any, share: Share, expected: Mapping[str, int], layout: str) -> None:
    """Compare a view, whose dimensions are in vLLM's order, with what was published.

    vLLM up to 0.25 has K and V in a dimension of their own on GPUs. Whether a view
    is contiguous says nothing: its dimensions need not be in the order of memory.
    """
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    blocks, tokens, heads, elements = share.blocks, share.block_tokens, share.heads, share.head_dim
    if share.latent:
        found = _latent_strides(name, share, shape, strides)
    elif shape == (blocks, heads, tokens, 2 * elements):
        found = dict(zip("BHND", strides, strict=True))
        found["F"] = elements * found["D"]
    elif shape == (blocks, 2, tokens, heads, elements):
        found = dict(zip("BFNHD", strides, strict=True))
    else:
        raise ValueError(
            f"the KV cache of {name} has the shape {shape}, expected "
            f"{(blocks, heads, tokens, 2 * elements)}: blocks, heads, tokens, K and V; "
            f"or {(blocks, 2, tokens, heads, elements)}"
        )
    wanted = {axis: expected[axis] for axis in found}
    if found != wanted:
        raise ValueError(
            f"the KV cache of {name} has the strides {strides}, which are {found}, expected {wanted}: "
            f"layout {layout}"
        )


def _latent_strides(
    name: str, share: Share, shape: tuple[int, ...], strides: tuple[int, ...]
) -> dict[str, int]:
    """Return the strides of latents, which have no heads; some views show one head nevertheless."""
    wanted = (share.blocks, share.block_tokens, share.head_dim)
    if shape == (share.blocks, 1, *wanted[1:]):
        strides = (strides[0], *strides[2:])
    elif shape != wanted:
        raise ValueError(
            f"the KV cache of {name} has the shape {shape}, expected {wanted}: blocks, tokens, one latent; "
            f"or {(share.blocks, 1, *wanted[1:])}"
        )
    return dict(zip("BND", strides, strict=True))


def _allocation(tensor: Any) -> int:
    """Tell allocations of a GPU apart, of which each is lent by itself."""
    if tensor.device.type == "cpu":
        return 0
    address: int = tensor.untyped_storage().data_ptr()
    return address


def _joined(found: Iterable[tuple[int, Region]]) -> Iterator[Region]:
    before: tuple[int, Region] | None = None
    for of, region in found:
        if before is not None and before[0] == of and before[1].address + before[1].size == region.address:
            before = of, Region(before[1].address, before[1].size + region.size)
            continue
        if before is not None:
            yield before[1]
        before = of, region
    if before is not None:
        yield before[1]
