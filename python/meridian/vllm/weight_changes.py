"""Weights that change while a server runs, as in reinforcement learning, and what its KV cache is of then.

::

    published ──changed──► mixed ──vLLM's cache is emptied──► fresh ──a version is named──► named
                             ▲                                  │                             │
                             └─────────────changed──────────────┴─────────────────────────────┘

While it is mixed, vLLM's blocks may be of weights from before and from after the change, and
nothing is shared. Where the cache is empty when weights change, as in a pause, it is fresh at
once: its name is random, so no other server has it. A version that the caller names is shared
with servers that began with the same weights and are told the same version.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, runtime_checkable

from meridian.door import Scope, new_transfer
from meridian.vllm.prompt import media_of
from meridian.vllm.weights import digest_of

_HARMLESS: Final = frozenset(
    (
        "check_health",
        "compute_weight_checksums",
        "get_model_inspection",
        "init_weight_transfer_engine",
        "list_loras",
        "profile",
        "save_sharded_state",
        "shutdown_weight_transfer_engine",
        "synchronize_device",
        "update_max_model_len",
    )
)
"""What vLLM's workers are asked for that leaves weights alone. A worker's extension may do anything."""

_ADAPTERS: Final = 4096
"""How many adapters are remembered: one that came earlier is taken for what its files are."""

_RANDOM: Final = "#"


class Weights:
    """Names the weights that a server's KV cache is of. Everything is called from vLLM's thread."""

    def __init__(self, published: str) -> None:
        """Take the revision that the engine has published."""
        self._published = published
        self._name = ""
        self._mixed = False
        self._adapters: dict[int, str] = {}
        """Digests of the adapters' files when they came, by vLLM's number of them."""

    @property
    def shared(self) -> bool:
        """Whether other servers may have the same."""
        return not self._mixed and not self._name.startswith(_RANDOM)

    @property
    def mixed(self) -> bool:
        """Whether blocks may be of other weights than those that compute."""
        return self._mixed

    def changed(self, *, empty: bool) -> None:
        """Hear that weights will be others; `empty`: vLLM's cache holds nothing."""
        self._name, self._mixed = f"{_RANDOM}{new_transfer().hex()}", not empty

    def emptied(self) -> None:
        """Hear that vLLM's cache holds nothing any more."""
        self._mixed = False

    def named(self, version: str) -> None:
        """Hear which weights they are, in the caller's words."""
        self._name = f"@{hashlib.sha256(version.encode()).hexdigest()[:32]}"

    def scope_of(self, request: Any) -> Scope | None:
        """Return what a vLLM request's cache depends on beside its tokens; None: it is not to be shared.

        vLLM's hashes of blocks say all of this too, but differ from process to process.
        """
        lora = getattr(request, "lora_request", None)
        adapter = self._adapter(lora) if lora is not None else ""
        if self._mixed or adapter is None:
            return None
        revision = self._published + self._name if self._name else ""
        salt = getattr(request, "cache_salt", None) or ""
        return Scope(revision=revision, adapter=adapter, media=media_of(request), salt=salt)

    def adapter_loaded(self, lora: Any) -> None:
        """Hear of an adapter that vLLM loads; one that it has already, only where it says so."""
        if getattr(lora, "load_inplace", False):
            self._adapters.pop(lora.lora_int_id, None)

    def _adapter(self, lora: Any) -> str | None:
        """Name an adapter so that another one, loaded later by the same name, is another.

        None: its files are others than when it came, so it is not known of which vLLM has the weights.
        """
        path = getattr(lora, "lora_path", "") or ""
        digest = digest_of(path) if os.path.exists(path) else path
        if self._adapters.setdefault(lora.lora_int_id, digest) != digest:
            return None
        if len(self._adapters) > _ADAPTERS:
            del self._adapters[next(iter(self._adapters))]
        return f"{lora.lora_name}+{digest}" if digest else str(lora.lora_name)


@runtime_checkable
class Follower(Protocol):
    """What hears of an engine's weights: a connector of ours, at vLLM's scheduler."""

    def weights_change(self, by: str) -> None: ...
    def weights_named(self, version: str) -> None: ...
    def adapter_loaded(self, lora: Any) -> None: ...
    def cache_emptied(self) -> None: ...


def follow(engine: type[Any]) -> bool:
    """Have connectors of these engines (vLLM's EngineCore) hear of their weights; False: they will not.

    vLLM tells its connectors nothing of that, but all that changes weights goes through the engine.
    """
    if getattr(engine, "_meridian_follows", False):
        return True
    if not all(hasattr(engine, name) for name in ("collective_rpc", "add_lora", "reset_prefix_cache")):
        return False
    _before(engine, "collective_rpc", _asks)
    _before(engine, "add_lora", _loads)
    _after(engine, "reset_prefix_cache", _was_reset)
    if hasattr(engine, "set_weight_version"):
        _after(engine, "set_weight_version", _was_named)
    engine._meridian_follows = True
    return True


def follow_vllm() -> bool:
    """Have connectors hear of the weights of this process's vLLM; False: they will not."""
    try:
        from vllm.v1.engine.core import EngineCore
    except ImportError:  # a release that has it elsewhere
        return False
    return follow(EngineCore)


def is_empty(pool: Any) -> bool:
    """Say whether vLLM's blocks hold nothing: none is in use, but for its null block, and none is found."""
    used = pool.num_gpu_blocks - pool.get_num_free_blocks()
    return used <= 1 and len(pool.cached_block_hash_to_block) == 0


def _asks(follower: Follower, method: Any, *_: Any, **__: Any) -> None:
    name = method if isinstance(method, str) else getattr(method, "__name__", repr(method))
    if name not in _HARMLESS:
        follower.weights_change(name)


def _loads(follower: Follower, *args: Any, **kwargs: Any) -> None:
    (lora,) = (*args, *kwargs.values())
    follower.adapter_loaded(lora)


def _was_reset(follower: Follower, done: Any, *_: Any, **__: Any) -> None:
    if done:
        follower.cache_emptied()


def _was_named(follower: Follower, _: Any, *args: Any, **kwargs: Any) -> None:
    (version,) = (*args, *kwargs.values())
    follower.weights_named(version)


def _before(engine: type[Any], name: str, tell: Callable[..., None]) -> None:
    original = getattr(engine, name)

    @functools.wraps(original)
    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        for follower in _followers(self):
            tell(follower, *args, **kwargs)
        return original(self, *args, **kwargs)

    setattr(engine, name, told)


def _after(engine: type[Any], name: str, tell: Callable[..., None]) -> None:
    original = getattr(engine, name)

    @functools.wraps(original)
    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        done = original(self, *args, **kwargs)
        for follower in _followers(self):
            tell(follower, done, *args, **kwargs)
        return done

    setattr(engine, name, told)


def _followers(engine: Any) -> Iterator[Follower]:
    """Go through our connectors of an engine, which has none while it starts."""
    connector = getattr(getattr(engine, "scheduler", None), "connector", None)
    for each in (connector, *getattr(connector, "_connectors", ())):
        if isinstance(each, Follower):
            yield each
