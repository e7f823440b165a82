"""What is said of vLLM's cache, and where it lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from meridian.door import Layer, Publication
from meridian.vllm.cut import CachedLayer, Cut, arrange, in_memory
from meridian.vllm.memory import Cache, Region, Share, dense

FULL, WINDOW = Layer(4, 8), Layer(4, 8, window_tokens=16)
SHARE = Share(blocks=10, block_tokens=4, heads=2, head_dim=8)
BYTES = 10 * 4 * 2 * 16 * 4


@dataclass
class Tensor:
    """What is looked at of a torch tensor."""

    address: int
    shape: tuple[int, ...] = (10, 2, 4, 16)
    strides: tuple[int, ...] = (2 * 4 * 16, 4 * 16, 16, 1)
    kind: str = "cpu"
    storage: int = 0

    @property
    def device(self) -> SimpleNamespace:
        return SimpleNamespace(type=self.kind)

    def stride(self) -> tuple[int, ...]:
        return self.strides

    def data_ptr(self) -> int:
        return self.address

    def element_size(self) -> int:
        return 4

    def untyped_storage(self) -> SimpleNamespace:
        return SimpleNamespace(data_ptr=lambda: self.storage)


def layers(*kinds: tuple[Layer, int]) -> list[CachedLayer]:
    return [CachedLayer(f"layers.{i}", i, group, layer) for i, (layer, group) in enumerate(kinds)]


def test_layers_come_in_their_order_and_equal_ones_together_in_memory() -> None:
    mixed = layers((WINDOW, 1), (FULL, 0), (WINDOW, 1), (FULL, 0))
    ordered, groups = arrange(mixed[::-1])
    assert [cached.index for cached in ordered] == [0, 1, 2, 3] and groups == (1, 0)
    assert [cached.index for cached in in_memory(ordered)] == [0, 2, 1, 3]


def test_equal_layers_with_tables_of_their_own_are_refused() -> None:
    with pytest.raises(ValueError, match="groups 0 and 1"):
        arrange(layers((FULL, 0), (FULL, 1)))


def test_missing_layers_are_refused() -> None:
    with pytest.raises(ValueError, match="not numbered"):
        arrange(layers((FULL, 0), (FULL, 0))[1:])


def test_tables_are_as_long_as_the_prompt() -> None:
    cut = Cut(Publication("fp32", [FULL], 4, 100), (0,))
    assert cut.tables(([1, 2, 3, 4],), 9) == [[1, 2, 3]]
    with pytest.raises(ValueError, match="9 tokens need 3 blocks"):
        cut.tables(([1, 2],), 9)


def test_an_edge_is_lost_only_where_a_block_ends_there() -> None:
    cut = Cut(Publication("fp32", [WINDOW, FULL], 4, 100), (0, 1))
    assert [tokens for tokens in range(1, 40) if cut.edge_is_lost(tokens)] == [19, 23, 27, 31, 35, 39]
    assert not Cut(Publication("fp32", [FULL], 4, 100), (0,)).edge_is_lost(19)


def cache(*tensors: Tensor, layout: str = "LBHNC") -> Cache:
    names = layers(*[(FULL, 0)] * len(tensors))
    caches = {cached.name: tensor for cached, tensor in zip(names, tensors, strict=True)}
    return Cache(names, [SHARE] * len(tensors), layout, caches)


def test_neighbours_are_one_region() -> None:
    lent = cache(Tensor(1000), Tensor(1000 + BYTES), Tensor(500_000))
    assert lent.kind == "cpu"
    assert lent.regions() == [Region(1000, 2 * BYTES), Region(500_000, BYTES)]


def test_neighbours_of_two_allocations_of_a_gpu_stay_apart() -> None:
    one, other = (
        Tensor(1000, kind="cuda", storage=1000),
        Tensor(1000 + BYTES, kind="cuda", storage=1000 + BYTES),
    )
    assert cache(one, other).kind == "cuda"
    assert cache(one, other).regions() == [Region(1000, BYTES), Region(1000 + BYTES, BYTES)]
    other.storage = 1000
    assert cache(one, other).regions() == [Region(1000, 2 * BYTES)]


def views(axes: str, dimensions: Sequence[str], count: int = 3) -> list[Tensor]:
    """Return layers of one storage as vLLM shows them: dimensions in its order, strides of memory."""
    extents = SHARE.extents(count)
    strides = dense(axes, extents)
    shape = [extents[d] if d != "C" else 2 * SHARE.head_dim for d in dimensions]
    steps = [strides["D" if d == "C" else d] for d in dimensions]
    return [
        Tensor(1000 + 4 * i * strides["L"], tuple(shape), tuple(steps), "cuda", 1000) for i in range(count)
    ]


@pytest.mark.parametrize("layout", ["LBNHC", "LBHNC", "LHBNC", "BLHNC", "BLNHC", "BHLNC"])
def test_layouts_of_vllm_on_gpus(layout: str) -> None:
    tensors = views(layout.replace("C", "FD"), "BHNC")
    assert cache(*tensors, layout=layout).regions() == [Region(1000, 3 * BYTES)]
    other = "LBHNC" if layout != "LBHNC" else "LBNHC"
    with pytest.raises(ValueError, match=f"layout {other}"):
        cache(*tensors, layout=other).regions()


@pytest.mark.parametrize("layout", ["LBFNHD", "LBFHND"])
def test_keys_and_values_in_dimensions_of_their_own(layout: str) -> None:
    tensors = views(layout, "BFNHD")
    assert cache(*tensors, layout=layout).regions() == [Region(1000, 3 * BYTES)]
    with pytest.raises(ValueError, match="layout LBNHC"):
        cache(*tensors, layout="LBNHC").regions()


def test_layers_that_are_not_where_their_layout_says() -> None:
    tensors = views("BLHNFD", "BHNC")
    tensors[2].address += 4
    with pytest.raises(ValueError, match=r"layers\.2 begins at"):
        cache(*tensors, layout="BLHNC").regions()


def test_what_is_not_as_published_is_named() -> None:
    for tensor, complaint in (
        (
            Tensor(0, shape=(10, 4, 2, 16)),
            r"layers\.0 has the shape \(10, 4, 2, 16\), expected \(10, 2, 4, 16\)",
        ),
        (Tensor(0, strides=(128, 16, 32, 1)), r"layers\.0 has the strides \(128, 16, 32, 1\)"),
    ):
        with pytest.raises(ValueError, match=complaint):
            cache(tensor).regions()
    with pytest.raises(ValueError, match=r"no KV cache for layers\.0"):
        Cache(layers((FULL, 0)), [SHARE], "LBHNC", {"other": Tensor(0)}).regions()
    with pytest.raises(ValueError, match="memory of xpu: lent is that of cpu or cuda"):
        print(cache(Tensor(0, kind="xpu")).kind)
