"""What is said of vLLM's cache, and where it lies."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from meridian.door import Layer, Publication
from meridian.vllm.cut import CachedLayer, Cut, arrange, in_memory
from meridian.vllm.memory import Region, Share, regions

FULL, WINDOW = Layer(4, 8), Layer(4, 8, window_tokens=16)
SHARE = Share(blocks=10, block_tokens=4, heads=2, head_dim=8)
BYTES = 10 * 4 * 2 * 16 * 4


@dataclass
class Tensor:
    """What is looked at of a torch tensor."""

    address: int
    shape: tuple[int, ...] = SHARE.shape
    strides: tuple[int, ...] = (2 * 4 * 16, 4 * 16, 16, 1)
    kind: str = "cpu"

    @property
    def device(self) -> SimpleNamespace:
        return SimpleNamespace(type=self.kind)

    def stride(self) -> tuple[int, ...]:
        return self.strides

    def data_ptr(self) -> int:
        return self.address

    def element_size(self) -> int:
        return 4


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


def test_neighbours_are_one_region() -> None:
    names = layers((FULL, 0), (FULL, 0), (FULL, 0))
    caches = {"layers.0": Tensor(1000), "layers.1": Tensor(1000 + BYTES), "layers.2": Tensor(500_000)}
    assert regions(names, [SHARE] * 3, caches) == [Region(1000, 2 * BYTES), Region(500_000, BYTES)]


def test_what_is_not_as_published_is_named() -> None:
    one = layers((FULL, 0))
    for tensor, complaint in (
        (Tensor(0, kind="cuda"), "so far only memory of the CPU can be lent"),
        (
            Tensor(0, shape=(10, 4, 2, 16)),
            r"layers\.0 has the shape \(10, 4, 2, 16\), expected \(10, 2, 4, 16\)",
        ),
        (Tensor(0, strides=(128, 16, 32, 1)), r"layers\.0 has the strides \(128, 16, 32, 1\)"),
    ):
        with pytest.raises(ValueError, match=complaint):
            regions(one, [SHARE], {"layers.0": tensor})
    with pytest.raises(ValueError, match=r"no KV cache for layers\.0"):
        regions(one, [SHARE], {"other": Tensor(0)})
