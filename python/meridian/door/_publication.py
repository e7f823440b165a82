"""What an engine tells the agent of its host about itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from meridian.door import _messages
from meridian.door._messages import Message


@dataclass(frozen=True, slots=True)
class Control:
    """The engine's scheduler. There is one."""

    url: str = ""
    """Where users' requests reach the engine; empty if they do not."""
    role: Literal["prefill", "decode", "both"] = "both"
    """What requests it is meant for."""
    model: str = ""
    """What is served: the name in users' requests."""


@dataclass(frozen=True, slots=True)
class Rank:
    """A process that has a part of the cache in its memory."""

    index: int
    """Its number: ((pp·DP + dp)·TP + tp)·CP + cp."""
    ranks: int
    """How many ranks the engine has, over all hosts."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What a cache is of besides its tokens.

    In a Publication it is what all requests share, in an offer or accept what is
    the request's own; a field that is empty there takes the engine's.
    """

    model: str = ""
    revision: str = ""
    adapter: str = ""
    media: str = ""
    salt: str = ""

    def within(self, shared: Scope) -> Scope:
        """Return the scope of a request whose engine shares one."""
        return Scope(
            self.model or shared.model,
            self.revision or shared.revision,
            self.adapter or shared.adapter,
            self.media or shared.media,
            self.salt or shared.salt,
        )

    def fill(self, message: Message) -> None:
        """Write the scope into a message of that type."""
        message.model, message.revision, message.adapter = self.model, self.revision, self.adapter
        message.media, message.salt = self.media, self.salt


@dataclass(frozen=True, slots=True)
class Layer:
    """The cache of one transformer layer for the whole model, before any cut over ranks."""

    kv_heads: int
    head_dim: int
    attention: Literal["key_value", "latent"] = "key_value"
    window_tokens: int = 0
    """How far back a sliding-window layer attends; 0: all the way."""
    index_bytes: int = 0
    """What a sparse-attention indexer keeps of each token beside the cache; 0: nothing."""


@dataclass(frozen=True, slots=True)
class Publication:
    """What an engine caches, and how it is cut and kept."""

    dtype: str
    layers: Sequence[Layer]
    block_tokens: int
    blocks: int
    tp: int = 1
    stages: Sequence[int] = ()
    """Layers of each pipeline stage; empty: one stage has them all."""
    cp: int = 1
    dp: int = 1
    layout: str = "LBHNC"
    packing: str = ""
    interleave_tokens: int = 0
    """How many tokens in a row a context rank takes; 0: one block."""
    scope: Scope = field(default_factory=Scope)

    def message(self) -> Message:
        """Return the publication as the door has it."""
        m = _messages.Publish(
            tp=self.tp,
            stages=self.stages or [len(self.layers)],
            cp=self.cp,
            dp=self.dp,
            layout=self.layout,
            packing=self.packing,
            block_tokens=self.block_tokens,
            blocks=self.blocks,
            interleave_tokens=self.interleave_tokens,
        )
        m.geometry.dtype = self.dtype
        for layer in self.layers:
            m.geometry.layers.add(
                attention=layer.attention,
                kv_heads=layer.kv_heads,
                head_dim=layer.head_dim,
                window_tokens=layer.window_tokens,
                index_bytes=layer.index_bytes,
            )
        self.scope.fill(m.scope)
        return m
