"""What vLLM's own configuration says of its KV cache."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any, Final

from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec, SlidingWindowSpec

from meridian.door import Layer, Publication, Scope
from meridian.vllm.cut import CachedLayer, Cut, arrange, in_memory
from meridian.vllm.memory import Share
from meridian.vllm.weights import digest_of

_DTYPES: Final = {
    "torch.float32": "fp32",
    "torch.float16": "fp16",
    "torch.bfloat16": "bf16",
    "torch.float8_e4m3fn": "fp8_e4m3",
    "torch.float8_e5m2": "fp8_e5m2",
    "torch.int8": "int8",
}


_HAS_LONG_ROPE: Final = re.compile(r"['\"](longrope|su)\\*['\"]")
"""A kind of positions whose factors vLLM chooses by the longest prompt that a server takes."""


class Model:
    """One model as one vLLM serves it. ValueError: its KV cache cannot be handed off, and why."""

    def __init__(self, vllm_config: Any, kv_cache_config: Any) -> None:
        self._config = vllm_config
        parallel = vllm_config.parallel_config
        for what in ("decode_context_parallel_size", "prefill_context_parallel_size"):
            if (ranks := getattr(parallel, what, 1)) > 1:
                raise ValueError(f"{what} is {ranks}: context parallelism is not handed off yet")
        self.tp: int = parallel.tensor_parallel_size
        self.pp: int = parallel.pipeline_parallel_size
        self._blocks: int = kv_cache_config.num_blocks
        self._specs = dict(_specs(kv_cache_config))
        if not self._specs:
            raise ValueError("this model has no KV cache")
        for name, (_, spec) in self._specs.items():
            _check_kind(name, spec)
        self._block_tokens: int = _same("block size", [s.block_size for _, s in self._specs.values()])
        _check_shared(vllm_config)
        self._dtype: Any = _same("dtype", [s.dtype for _, s in self._specs.values()])
        self._layers = [
            CachedLayer(name, _index(name), group, self._layer(name, spec))
            for name, (group, spec) in self._specs.items()
        ]

    @property
    def name(self) -> str:
        """What users call it."""
        served = self._config.model_config.served_model_name
        found: str = (served[0] if isinstance(served, list) else served) or self._config.model_config.model
        return found

    @property
    def ranks(self) -> int:
        return self.tp * self.pp

    @property
    def one_step_at_a_time(self) -> bool:
        """Whether a step's requests are finished before another step takes blocks from any request."""
        parallel, scheduler = self._config.parallel_config, self._config.scheduler_config
        overlapped = getattr(scheduler, "async_scheduling", False) or getattr(
            parallel, "use_ubatching", False
        )
        return self.pp == 1 and not overlapped

    @property
    def names_media(self) -> bool:
        """Whether pictures and sounds go by what they are.

        Where vLLM caches neither prompts nor media it numbers media instead, in each process from 1 on.
        """
        media = getattr(self._config.model_config, "multimodal_config", None)
        cached = getattr(media, "mm_processor_cache_gb", None) != 0
        return cached or bool(self._config.cache_config.enable_prefix_caching)

    @property
    def prefixes_stand_alone(self) -> bool:
        """Whether what is cached of a token does not depend on those that follow it in the prompt."""
        return not any(getattr(spec, "non_causal", False) for _, spec in self._specs.values())

    @property
    def layout(self) -> str:
        """Say in which order the axes of the cache are in memory."""
        from vllm.platforms import current_platform

        if current_platform.is_cpu():
            return "LBHNC"
        layout: str | None = getattr(self._config.cache_config, "kv_cache_layout", None)
        return layout or _older_layout(self._config)

    def cut(self) -> Cut:
        """Return what all its ranks cache together."""
        if self.pp > 1:
            return self._staged()
        ordered, groups = arrange(self._layers)
        return Cut(self._publication([cached.layer for cached in ordered], ()), groups)

    def _staged(self) -> Cut:
        """The scheduler knows the layers of one stage alone: all others must be like them."""
        from vllm.distributed.utils import get_pp_indices

        layer = _same("layer", [cached.layer for cached in self._layers])
        count: int = self._config.model_config.get_total_num_hidden_layers()
        bounds = [get_pp_indices(count, stage, self.pp) for stage in range(self.pp)]
        return Cut(self._publication([layer] * count, tuple(end - first for first, end in bounds)), (0,))

    def _publication(self, layers: list[Layer], stages: tuple[int, ...]) -> Publication:
        dtype = _DTYPES.get(str(self._dtype))
        if dtype is None:
            raise ValueError(
                f"a KV cache of {self._dtype} ({self._config.cache_config.cache_dtype}) cannot be handed "
                "off: start vLLM with --kv-cache-dtype auto"
            )
        return Publication(
            dtype=dtype,
            layers=layers,
            block_tokens=self._block_tokens,
            blocks=self._blocks,
            tp=self.tp,
            stages=stages,
            layout=self.layout,
            packing=self._packing(dtype),
            scope=Scope(model=self.name, revision=self._revision()),
        )

    def share(self) -> tuple[list[CachedLayer], list[Share]]:
        """Return what this rank caches, in the order of its memory."""
        ordered = in_memory(sorted(self._layers, key=lambda cached: cached.index))
        shares = []
        for cached in ordered:
            heads, head_dim = self._specs[cached.name][1].num_kv_heads, cached.layer.head_dim
            latent = cached.layer.attention == "latent"
            shares.append(Share(self._blocks, self._block_tokens, heads, head_dim, latent=latent))
        return ordered, shares

    def _layer(self, name: str, spec: Any) -> Layer:
        if isinstance(spec, MLAAttentionSpec):  # every rank has all of it
            return Layer(kv_heads=1, head_dim=spec.head_size, attention="latent")
        values = getattr(spec, "head_size_v", None)
        if values is not None and values != spec.head_size:
            raise ValueError(f"{name} has keys of {spec.head_size} and values of {values} elements")
        total: int = self._config.model_config.get_total_num_kv_heads()
        heads = spec.num_kv_heads * self.tp
        if spec.num_kv_heads == 1 and total < self.tp:
            heads = total  # ranks hold copies
        window = spec.sliding_window if isinstance(spec, SlidingWindowSpec) else 0
        return Layer(kv_heads=heads, head_dim=spec.head_size, window_tokens=window)

    def _packing(self, dtype: str) -> str:
        """Name the order of elements within a block.

        On CPU it depends on the instructions that the kernels use, and a
        release of vLLM may change it.
        """
        from vllm.platforms import current_platform
        from vllm.version import __version__

        head_dims = {c.layer.head_dim for c in self._layers if c.layer.attention == "key_value"}
        if not current_platform.is_cpu():
            return "plain"
        if not head_dims:
            return self._latent_packing(dtype)
        from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

        cache = self._config.cache_config
        isas = {
            _get_attn_isa(self._config.model_config.dtype, self._block_tokens, head_dim, cache.cache_dtype)
            for head_dim in head_dims
        }
        return f"head:cpu_attn-{'+'.join(sorted(isas))}-{dtype}-block{self._block_tokens}-vllm{__version__}"

    def _latent_packing(self, dtype: str) -> str:
        """Name the order of elements of latents on a CPU: one after the other, unless AMX is there.

        vLLM then has kernels of their own, of whose order nothing is known.
        """
        from torch.cpu import _is_amx_tile_supported
        from vllm.version import __version__

        if not _is_amx_tile_supported():
            return "plain"
        return f"head:amx_mla-{dtype}-block{self._block_tokens}-vllm{__version__}"

    def _revision(self) -> str:
        """Tell apart what goes by one name: weights, and what the model's own configuration says.

        Of a directory the weights themselves are looked at; of a model of a hub, which
        commit it is.
        """
        from blake3 import blake3

        model = self._config.model_config
        described = {
            key: value
            for key, value in model.hf_config.to_dict().items()
            if not key.startswith("_") and key != "transformers_version"
        }
        text = repr(sorted((key, repr(value)) for key, value in described.items()))
        text += f" {getattr(model, 'quantization', None)}"
        if _HAS_LONG_ROPE.search(text):  # vLLM then turns keys otherwise, whatever the length of a prompt
            text += f" {[model.max_model_len > length for length in _original_lengths(described)]}"
        if kwargs := getattr(getattr(model, "multimodal_config", None), "mm_processor_kwargs", None):
            text += f" {sorted((key, repr(value)) for key, value in kwargs.items())}"
        if os.path.exists(model.model):
            weights = digest_of(model.model)
        else:
            weights = (
                f"{model.model}@{getattr(model.hf_config, '_commit_hash', None) or model.revision or ''}"
            )
        return f"{weights}+{blake3(text.encode()).hexdigest()[:16]}"


def _specs(kv_cache_config: Any) -> Iterator[tuple[str, tuple[int, Any]]]:
    for number, group in enumerate(kv_cache_config.kv_cache_groups):
        each = getattr(group.kv_cache_spec, "kv_cache_specs", None)  # layers of one kind, of several sizes
        for name in group.layer_names:
            yield name, (number, group.kv_cache_spec if each is None else each[name])


def _older_layout(vllm_config: Any) -> str:
    """Return the layout of vLLM up to 0.25 on a GPU, where K and V are apart within a block."""
    from vllm.config import set_current_vllm_config
    from vllm.v1.attention.backends.utils import get_kv_cache_layout

    with set_current_vllm_config(vllm_config):
        name: str = get_kv_cache_layout()
    return {"NHD": "LBFNHD", "HND": "LBFHND"}[name]


def _check_shared(vllm_config: Any) -> None:
    if getattr(vllm_config.model_config, "enable_sleep_mode", False):
        raise ValueError(
            "memory of sleep mode has no CUDA IPC handle: start vLLM without --enable-sleep-mode"
        )


def _check_kind(name: str, spec: Any) -> None:
    if type(spec) not in (FullAttentionSpec, SlidingWindowSpec, MLAAttentionSpec):
        raise ValueError(f"{name} keeps a {type(spec).__name__}, which is not handed off yet")
    if type(spec) is MLAAttentionSpec:
        _check_latent(name, spec)


def _check_latent(name: str, spec: Any) -> None:
    """Refuse what goes by the same kind and is no latent for each token, of elements of one dtype."""
    kept = str(getattr(spec, "cache_dtype_str", None))
    if kept.endswith("_ds_mla") or getattr(spec, "state_content_bytes", None) is not None:
        raise ValueError(
            f"{name} keeps latents with their scales packed beside them ({kept}), which are not handed off: "
            "start vLLM with --kv-cache-dtype auto"
        )
    if "indexer" in name.split(".") or getattr(spec, "is_index_group_leader", False):
        raise ValueError(f"{name} is of sparse attention with an indexer, which is not handed off yet")
    # Releases of vLLM differ in the name for it.
    for compressed in ("tokens_per_state", "compress_ratio"):
        if (tokens := getattr(spec, compressed, 1)) != 1:
            raise ValueError(f"{name} keeps one latent for {tokens} tokens, which is not handed off yet")


def _original_lengths(described: Any) -> Iterator[int]:
    """Go through the lengths, anywhere in a model's configuration, that it was made for at first."""
    if not isinstance(described, dict):
        return
    for key, value in sorted(described.items(), key=lambda item: str(item[0])):
        if key == "original_max_position_embeddings" and isinstance(value, int):
            yield value
        else:
            yield from _original_lengths(value)


def _index(name: str) -> int:
    numbers = [int(part) for part in name.split(".") if part.isdigit()]
    if len(numbers) != 1:
        raise ValueError(f"{name} does not say which layer it is")
    return numbers[0]


def _same(what: str, values: list[Any]) -> Any:
    if any(value != values[0] for value in values):
        raise ValueError(f"layers differ in their {what}: {sorted(set(map(str, values)))}")
    return values[0]
