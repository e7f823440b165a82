"""Weights that change while a server runs, as in reinforcement learning, and what its KV cache is of then.

::

    published ──changed──► mixed ──vLLM's cache is emptied──► private ──a version is named──► named
                             ▲                                   │                              │
                             └──────────────changed──────────────┴──────────────────────────────┘

While it is mixed, vLLM's blocks may be of weights from before and from after the change, and
nothing is shared. Where the cache is empty when weights change, as in a pause, they are private at
once: of a random name, that no other server has. A version that the caller names is shared
with servers that began with the same weights and are told the same version.

A reset of the connector's cache alone, which vLLM also asks for in every pause, is no change: what the cell
has kept is not found any more, and hand-offs go on.
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

_FAILED: Final = object()
"""What a method has returned that did not."""

_RANDOM: Final = "#"
_VERSION: Final = "@"


class Weights:
    """Names the weights that a server's KV cache is of. Everything is called from vLLM's thread."""

    def __init__(self, published: str, *, names_media: bool = True) -> None:
        """Take the revision that the engine has published.

        `names_media`: pictures and sounds go by what they are, and not by when they came.
        """
        self._published, self._names_media = published, names_media
        self._name = ""
        self._mixed = False
        self._generation = ""
        """What tells what is kept now from what was kept before the last reset."""
        self._stale = False
        """Whether vLLM may have blocks from before it."""
        self._adapters = Adapters()

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
        self._name, self._mixed, self._generation = _random(), not empty, ""

    def reset(self, *, empty: bool) -> None:
        """Hear that nothing is to be found of what was kept; with a version that is said by the next one."""
        if not self._name.startswith(_VERSION):
            self._generation, self._stale = _random(), not empty

    def emptied(self) -> None:
        """Hear that vLLM's cache holds nothing any more."""
        self._mixed = self._stale = False
        self._adapters.emptied()

    def named(self, version: str) -> None:
        """Hear which weights they are, in the caller's words."""
        self._name, self._generation = f"{_VERSION}{hashlib.sha256(version.encode()).hexdigest()[:32]}", ""

    def scope_of(self, request: Any) -> Scope | None:
        """Return what a vLLM request's cache depends on beside its tokens; None: no other has the same.

        vLLM's hashes of blocks say all of this too, but differ from process to process.
        """
        return self._scope(request, self._name) if self.shared else None

    def kept_scope_of(self, request: Any) -> Scope | None:
        """Return the scope under which a request's cache is kept and found; None: it is neither."""
        if self._mixed or self._stale:
            return None
        return self._scope(request, self._name + self._generation)

    def _scope(self, request: Any, name: str) -> Scope | None:
        if not self._names_media and getattr(request, "mm_features", None):
            return None
        lora = getattr(request, "lora_request", None)
        adapter = self._adapters.name_of(lora) if lora is not None else ""
        if adapter is None:
            return None
        revision = self._published + name if name else ""
        salt = getattr(request, "cache_salt", None) or ""
        return Scope(revision=revision, adapter=adapter, media=media_of(request), salt=salt)

    def adapter_loads(self, lora: Any, *, empty: bool) -> bool:
        """Hear of an adapter before vLLM loads it; return whether blocks may be of another by its name."""
        return self._adapters.loads(lora, empty=empty)

    def adapter_loaded(self, lora: Any) -> None:
        """Hear that vLLM has loaded it."""
        self._adapters.loaded(lora)


class Adapters:
    """Names adapters by the files that vLLM loaded, which may be others by now.

    vLLM finds blocks by an adapter's name and path: where another one was loaded by these, its
    blocks may be of either until vLLM's cache is emptied. It also loads adapters anew that it had to
    give up, unheard: one whose files are not those that it is known to have loaded is not shared.
    """

    def __init__(self) -> None:
        self._loaded: dict[tuple[str, str], str] = {}
        """Digests of what was loaded."""
        self._numbers: dict[int, tuple[str, str]] = {}
        """What vLLM has, by its number of it."""
        self._mixed: set[tuple[str, str]] = set()
        self._loading = ""

    def loads(self, lora: Any, *, empty: bool) -> bool:
        """Hear of one right before it is loaded; return whether blocks may be of another by its name."""
        key = _key(lora)
        self._loading = _digest(key)
        other = self._does_load(lora) and self._loaded.get(key, self._loading) != self._loading
        if other and not empty:
            self._mixed.add(key)
        return other and not empty

    def loaded(self, lora: Any) -> None:
        """Hear that vLLM has done as it was asked, which is nothing where it has the adapter already."""
        if not self._does_load(lora):
            return
        key = _key(lora)
        self._loaded[key] = self._loading if _digest(key) == self._loading else _random()
        self._numbers[lora.lora_int_id] = key
        if len(self._loaded) > _ADAPTERS:
            del self._loaded[next(iter(self._loaded))]
        if len(self._numbers) > _ADAPTERS:
            del self._numbers[next(iter(self._numbers))]

    def _does_load(self, lora: Any) -> bool:
        return getattr(lora, "load_inplace", False) or self._numbers.get(lora.lora_int_id) != _key(lora)

    def name_of(self, lora: Any) -> str | None:
        """Name an adapter so that other weights have another name; None: it is not known which they are."""
        key = _key(lora)
        try:
            there = digest_of(key[1]) if os.path.exists(key[1]) else self._loaded.get(key, key[1])
        except OSError:
            return None  # its files are being replaced
        if key in self._mixed or self._loaded.setdefault(key, there) != there:
            return None
        return f"{lora.lora_name}+{there}" if there else str(lora.lora_name)

    def emptied(self) -> None:
        """Hear that vLLM's cache holds nothing any more."""
        self._mixed.clear()


def _key(lora: Any) -> tuple[str, str]:
    return str(lora.lora_name), getattr(lora, "lora_path", "") or ""


def _digest(key: tuple[str, str]) -> str:
    """Return what the files are; of those of a hub, their name. While they change it is another each time."""
    try:
        return digest_of(key[1]) if os.path.exists(key[1]) else key[1]
    except OSError:
        return _random()


def _random() -> str:
    return f"{_RANDOM}{new_transfer().hex()}"


@runtime_checkable
class Follower(Protocol):
    """What hears of an engine's weights: a connector of ours, at vLLM's scheduler."""

    def weights_change(self, by: str) -> None: ...
    def weights_named(self, version: str) -> None: ...
    def adapter_loads(self, lora: Any) -> None: ...
    def adapter_loaded(self, lora: Any) -> None: ...
    def cache_resets(self) -> None: ...
    def cache_was_reset(self, done: bool) -> None: ...


def follow(engine: type[Any]) -> bool:
    """Have connectors of these engines (vLLM's EngineCore) hear of their weights; False: they will not.

    vLLM tells its connectors nothing of that, but all that changes weights goes through the engine.
    """
    if getattr(engine, "_meridian_follows", False):
        return True
    if not all(hasattr(engine, name) for name in ("collective_rpc", "add_lora", "reset_prefix_cache")):
        return False
    _around(engine, "collective_rpc", before=_asks)
    _around(engine, "add_lora", before=_loads, after=_loaded)
    _around(engine, "reset_prefix_cache", before=_resets, after=_was_reset)
    if hasattr(engine, "set_weight_version"):
        _around(engine, "set_weight_version", after=_was_named)
    engine._meridian_follows = True
    return True


def follow_vllm() -> bool:
    """Have connectors hear of the weights of this process's vLLM; False: they will not."""
    try:
        from vllm.v1.engine.core import EngineCore
    except ImportError:  # a release that has it elsewhere
        return False
    return follow(EngineCore)


def is_empty(pool: Any, held: int = 0) -> bool:
    """Say whether vLLM's blocks hold nothing: none is found, or in use but its null block and `held`."""
    used = pool.num_gpu_blocks - pool.get_num_free_blocks() - held
    return used <= 1 and len(pool.cached_block_hash_to_block) == 0


def _asks(follower: Follower, method: Any, *_: Any, **__: Any) -> None:
    name = method if isinstance(method, str) else getattr(method, "__name__", repr(method))
    if name not in _HARMLESS:
        follower.weights_change(name)


def _loads(follower: Follower, *args: Any, **kwargs: Any) -> None:
    follower.adapter_loads(_only(args, kwargs))


def _loaded(follower: Follower, done: Any, *args: Any, **kwargs: Any) -> None:
    if done is not _FAILED:
        follower.adapter_loaded(_only(args, kwargs))


def _resets(follower: Follower, *_: Any, **__: Any) -> None:
    follower.cache_resets()


def _was_reset(follower: Follower, done: Any, *_: Any, **__: Any) -> None:
    follower.cache_was_reset(done is True)


def _was_named(follower: Follower, done: Any, *args: Any, **kwargs: Any) -> None:
    if done is not _FAILED:
        follower.weights_named(_only(args, kwargs))


def _only(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    (only,) = (*args, *kwargs.values())
    return only


def _nothing(*_: Any, **__: Any) -> None: ...


def _around(
    engine: type[Any],
    name: str,
    before: Callable[..., None] = _nothing,
    after: Callable[..., None] = _nothing,
) -> None:
    """Have followers hear what a method is called with, before it is and after, even if it fails."""
    original = getattr(engine, name)

    @functools.wraps(original)
    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        followers, done = list(_followers(self)), _FAILED
        for follower in followers:
            before(follower, *args, **kwargs)
        try:
            done = original(self, *args, **kwargs)
        finally:
            for follower in followers:
                after(follower, done, *args, **kwargs)
        return done

    setattr(engine, name, told)


def _followers(engine: Any) -> Iterator[Follower]:
    """Go through our connectors of an engine, which has none while it starts."""
    connector = getattr(getattr(engine, "scheduler", None), "connector", None)
    for each in (connector, *getattr(connector, "_connectors", ())):
        if isinstance(each, Follower):
            yield each
