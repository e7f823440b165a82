"""What a request's cache is of."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from meridian.door import Scope
from meridian.vllm.transfer_params import thought_end_of
from meridian.vllm.weights import digest_of


def reads_cache(request: Any) -> bool:
    """Say whether a request may start from a cache; one that wants its prompt's logprobs computes it all."""
    return not getattr(request, "skip_reading_prefix_cache", False)


def tokens_of(request: Any) -> Sequence[int] | None:
    """Return the tokens of a vLLM request's prompt; None where they do not say what the prompt is."""
    if getattr(request, "prompt_embeds", None) is not None:
        return None
    tokens: Sequence[int] | None = request.prompt_token_ids
    return tokens or None


def preemptions_of(request: Any) -> int:
    """Return how often a vLLM request has lost its blocks."""
    count: int = getattr(request, "num_preemptions", 0)
    return count


def computed_of(request: Any) -> Sequence[int] | None:
    """Return the tokens of a vLLM request, prompt and answer, whose cache is computed; None as `tokens_of`.

    The last one that was sampled is not: it would be with the next step.
    """
    if tokens_of(request) is None:
        return None
    every: Sequence[int] = request.all_token_ids
    return every[: min(request.num_computed_tokens, len(every) - 1)]


def kept_of(request: Any) -> Sequence[int] | None:
    """Return which of `computed_of` may be kept.

    Where the gateway says how a thought ends and the answer has such an end, the
    prompt alone: the next turn goes on otherwise.
    """
    tokens = computed_of(request)
    end = thought_end_of(getattr(request, "kv_transfer_params", None))
    if tokens is None or not end:
        return tokens
    prompt = len(request.prompt_token_ids)
    answer = list(request.all_token_ids[prompt:])
    if any(answer[at : at + len(end)] == end for at in range(len(answer) - len(end) + 1)):
        return tokens[:prompt]
    return tokens


def scope_of(request: Any) -> Scope:
    """Return what else a vLLM request's cache depends on.

    vLLM's hashes of blocks say all of this too, but differ from process to
    process.
    """
    adapter = getattr(request, "lora_request", None)
    media = getattr(request, "mm_features", None) or ()
    return Scope(
        adapter=_adapter(adapter) if adapter is not None else "",
        media="\n".join(f"{_place(feature)} {feature.identifier}" for feature in media),
        salt=getattr(request, "cache_salt", None) or "",
    )


def _adapter(request: Any) -> str:
    """Name an adapter so that another one, loaded later by the same name, is another."""
    path = getattr(request, "lora_path", "") or ""
    digest = digest_of(path) if os.path.exists(path) else path
    return f"{request.lora_name}+{digest}" if digest else str(request.lora_name)


def _place(feature: Any) -> str:
    place = feature.mm_position
    return f"{place.offset}+{place.length}"
