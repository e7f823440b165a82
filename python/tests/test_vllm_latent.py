"""Models that keep one latent of each token (MLA): what is said of them, where they lie, how they move."""

from __future__ import annotations

import importlib
import sys
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from engines import TOKENS, Engine
from kvcache import LAYERS, Cut
from processes import Agent, Process
from test_vllm_cut import Tensor

from meridian.door import EventKind, Layer, Publication, Scope, new_transfer
from meridian.vllm.cut import CachedLayer
from meridian.vllm.memory import Cache, Region, Share, dense

LATENT = 12
LAYER = Layer(kv_heads=1, head_dim=LATENT, attention="latent")


@dataclass(frozen=True)
class Spec:
    """What is looked at of vLLM's own description of a layer's cache."""

    head_size: int = LATENT
    num_kv_heads: int = 1
    block_size: int = 16
    dtype: str = "torch.bfloat16"
    head_size_v: int = 0
    cache_dtype_str: str = "auto"
    state_content_bytes: int | None = None
    is_index_group_leader: bool = False
    tokens_per_state: int = 1
    non_causal: bool = False


class FullAttentionSpec(Spec):
    """As vLLM's: the latent's is one of its kind."""


class MLAAttentionSpec(FullAttentionSpec):
    pass


class SlidingWindowSpec(Spec):
    pass


class SlidingWindowMLASpec(SlidingWindowSpec):
    pass


Make = Callable[..., Any]


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Make:
    return models(monkeypatch)


def models(monkeypatch: pytest.MonkeyPatch, **described: object) -> Make:
    """Return what makes a Model, of a vLLM of which there is no more than it looks at.

    `described`: what is other than usual in vLLM's configuration of the model, or its own.
    """

    def stand_in(name: str, **has: object) -> None:
        module = ModuleType(name)
        vars(module).update(has)
        monkeypatch.setitem(sys.modules, name, module)

    for package in ("vllm", "vllm.v1"):
        stand_in(package)
    kinds = (FullAttentionSpec, MLAAttentionSpec, SlidingWindowSpec)
    stand_in("vllm.v1.kv_cache_interface", **{kind.__name__: kind for kind in kinds})
    stand_in("vllm.platforms", current_platform=SimpleNamespace(is_cpu=lambda: False))
    stand_in("vllm.version", __version__="0")
    assert "meridian.vllm.engine_config" not in sys.modules
    module = importlib.import_module("meridian.vllm.engine_config")
    del sys.modules["meridian.vllm.engine_config"]  # it knows this stand-in, and no other test's

    def make(*specs: Spec, tp: int = 1, names: str = "model.layers.{}.self_attn.attn", **more: Any) -> Any:
        named = {names.format(i): spec for i, spec in enumerate(specs)}
        group = SimpleNamespace(kv_cache_spec=SimpleNamespace(kv_cache_specs=named), layer_names=list(named))
        config = SimpleNamespace(
            parallel_config=SimpleNamespace(tensor_parallel_size=tp, pipeline_parallel_size=1, **more),
            model_config=SimpleNamespace(
                served_model_name="m",
                model="m",
                revision="r",
                hf_config=SimpleNamespace(to_dict=lambda: described.get("hf_config", {})),
                get_total_num_kv_heads=lambda: 128,
                max_model_len=described.get("max_model_len", 1024),
                multimodal_config=described.get("multimodal_config"),
            ),
            cache_config=SimpleNamespace(
                kv_cache_layout="LBNHC",
                cache_dtype="auto",
                enable_prefix_caching=described.get("enable_prefix_caching", True),
            ),
        )
        return module.Model(config, SimpleNamespace(num_blocks=10, kv_cache_groups=[group]))

    return make


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_every_rank_has_the_one_latent(model: Make, tp: int) -> None:
    """However many heads attend to it, and however they are cut."""
    made = model(MLAAttentionSpec(), MLAAttentionSpec(), tp=tp)
    cut = made.cut()
    assert list(cut.publication.layers) == [LAYER, LAYER] and cut.groups == (0,)
    assert (cut.publication.tp, cut.publication.dp) == (tp, 1)
    assert (cut.publication.dtype, cut.publication.block_tokens) == ("bf16", 16)
    assert cut.publication.packing == "plain"
    layers, shares = made.share()
    assert [cached.index for cached in layers] == [0, 1]
    assert shares == [Share(10, 16, heads=1, head_dim=LATENT, latent=True)] * 2


def test_a_rank_of_several_alike_publishes_no_more_than_itself(model: Make) -> None:
    """With data parallelism vLLM has a scheduler, workers and an engine's name for every rank."""
    publication = model(MLAAttentionSpec(), data_parallel_size=2).cut().publication
    assert (publication.dp, publication.tp) == (1, 1)


@pytest.mark.parametrize(
    ("spec", "names", "complaint"),
    [
        (
            MLAAttentionSpec(cache_dtype_str="fp8_ds_mla", dtype="torch.uint8", state_content_bytes=656),
            "layers.{}.attn",
            r"layers\.0\.attn keeps latents with their scales packed.*\(fp8_ds_mla\).*--kv-cache-dtype auto",
        ),
        (MLAAttentionSpec(), "layers.{}.attn.indexer.k_cache", "sparse attention with an indexer"),
        (MLAAttentionSpec(is_index_group_leader=True), "layers.{}.attn", "sparse attention with an indexer"),
        (MLAAttentionSpec(tokens_per_state=4), "layers.{}.attn", "one latent for 4 tokens"),
        (SlidingWindowMLASpec(), "layers.{}.attn", "keeps a SlidingWindowMLASpec"),
    ],
)
def test_what_is_no_latent_of_each_token_is_refused(
    model: Make, spec: Spec, names: str, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        model(spec, names=names)


def test_latents_of_8_bits_are_refused(model: Make) -> None:
    with pytest.raises(ValueError, match=r"torch\.uint8 .* --kv-cache-dtype auto"):
        model(MLAAttentionSpec(dtype="torch.uint8")).cut()


SHARE = Share(blocks=10, block_tokens=4, heads=1, head_dim=LATENT, latent=True)
BYTES = 10 * 4 * LATENT * 4


def latents(layout: str, *, shows_a_head: bool, count: int = 3) -> Cache:
    """Return layers of one storage as vLLM shows them."""
    extents = SHARE.extents(count)
    strides = dense(layout.replace("C", "FD"), extents)
    dimensions = "BHND" if shows_a_head else "BND"
    shape, steps = (tuple(each[d] for d in dimensions) for each in (extents, strides))
    tensors = {f"layers.{i}": Tensor(1000 + 4 * i * strides["L"], shape, steps) for i in range(count)}
    names = [CachedLayer(name, i, 0, LAYER) for i, name in enumerate(tensors)]
    return Cache(names, [SHARE] * count, layout, tensors)


@pytest.mark.parametrize("shows_a_head", [False, True])
@pytest.mark.parametrize("layout", ["LBNHC", "LBHNC", "LHBNC", "BLHNC", "LBFNHD"])
def test_where_latents_lie(layout: str, shows_a_head: bool) -> None:
    assert latents(layout, shows_a_head=shows_a_head).regions() == [Region(1000, 3 * BYTES)]


def test_latents_that_are_not_as_published() -> None:
    cache = latents("LBHNC", shows_a_head=False)
    tensor = cache.tensors["layers.1"]
    tensor.shape = (10, 4, 2 * LATENT)
    with pytest.raises(ValueError, match=r"layers\.1 has the shape \(10, 4, 24\), expected \(10, 4, 12\)"):
        cache.regions()
    tensor.shape, tensor.strides = (10, 4, LATENT), (64, LATENT, 1)  # blocks that are filled up
    with pytest.raises(ValueError, match=r"layers\.1 has the strides \(64, 12, 1\)"):
        cache.regions()


class LatentCut(Cut):
    """Latents in memory: every rank has all of them."""

    @property
    def rank_bytes(self) -> int:
        return LAYERS * self.blocks * self.block_tokens * LATENT * 4

    def publication(self, model: str = "m") -> Publication:
        scope = Scope(model=model)
        return Publication("fp32", [LAYER] * LAYERS, self.block_tokens, self.blocks, tp=self.tp, scope=scope)

    def rows(self, tokens: int, table: list[int]) -> Iterator[tuple[int, slice, bytes]]:
        size = LATENT * 4
        for layer in range(LAYERS):
            for token in range(tokens):
                block = layer * self.blocks + table[token // self.block_tokens]
                start = (block * self.block_tokens + token % self.block_tokens) * size
                values = array("f", ((layer * 1000 + token) * 16 + i for i in range(LATENT)))
                for rank in range(self.tp):
                    yield rank, slice(start, start + size), values.tobytes()


@pytest.fixture(scope="module")
def cell(meridian_binary: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Agent, Agent]]:
    state = tmp_path_factory.mktemp("cell")
    state.chmod(0o700)
    running: list[Process] = [
        Process(meridian_binary, state / "directory.log", "directory", "--state", str(state))
    ]
    try:
        agents = []
        for name in ("one", "two"):
            agents.append(Agent(meridian_binary, state, name))
            running.append(agents[-1])
        yield agents[0], agents[1]
    finally:
        for process in reversed(running):
            process.stop()


@pytest.mark.parametrize(
    ("source", "destination"),
    [
        (LatentCut(tp=2, block_tokens=16, blocks=16), LatentCut(tp=1, block_tokens=16, blocks=16)),
        (LatentCut(tp=2, block_tokens=4, blocks=64), LatentCut(tp=1, block_tokens=16, blocks=16)),
        (LatentCut(tp=1, block_tokens=16, blocks=16), LatentCut(tp=2, block_tokens=4, blocks=64)),
    ],
    ids=["2 ranks to 1", "small blocks to large", "1 rank to 2, large blocks to small"],
)
def test_a_hand_off_of_latents(cell: tuple[Agent, Agent], source: LatentCut, destination: LatentCut) -> None:
    of = f"{source.tp}-{source.block_tokens}-{destination.block_tokens}"
    with (
        Engine(cell[0].socket, f"prefill-{of}", source, borrow=True) as prefill,
        Engine(cell[1].socket, f"decode-{of}", destination, borrow=True) as decode,
    ):
        prefill.until(EventKind.SERVING)
        decode.until(EventKind.SERVING)
        source.fill(prefill.memory, len(TOKENS), source.table(len(TOKENS), 3))
        decode.accept(prefill.offer(new_transfer(), first=3), first=1)
        decode.until(EventKind.READY)
        destination.check(decode.memory, len(TOKENS), destination.table(len(TOKENS), 1))
