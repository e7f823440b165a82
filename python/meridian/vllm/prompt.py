"""What a request's cache is of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from meridian.vllm.transfer_params import thought_end_of


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


def media_of(request: Any) -> str:
    """Name the pictures and sounds of a vLLM request, and where they are among its tokens."""
    media = getattr(request, "mm_features", None) or ()
    return "\n".join(f"{_place(feature)} {feature.identifier}" for feature in media)


def _place(feature: Any) -> str:
    place = feature.mm_position
    return f"{place.offset}+{place.length}"
