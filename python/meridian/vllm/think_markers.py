"""Which ids start and end the thoughts of the model that this vLLM serves.

The first that knows them says: ``[model.*]`` of meridian.toml, vLLM's own ``--reasoning-config`` or
``--reasoning-parser``, the model's tokenizer, where ``<think>`` and ``</think>`` are tokens of it.
"""

from __future__ import annotations

from typing import Any, Final

from meridian.config import MeridianConfig, Model
from meridian.vllm.thoughts import ThinkMarkers

OPENING_PARSERS: Final = ("deepseek_r1",)
"""Families whose streams begin within the thought, with or without a start marker."""

_HINT: Final = (
    "say how its thoughts start and end: think_start_token_ids and think_end_token_ids of [model.{name}] in "
    "meridian.toml, or reasoning_start_str and reasoning_end_str of --reasoning-config"
)


def tokenizer_of(vllm_config: Any) -> Any:
    """Return the model's tokenizer; None where the server has none."""
    from vllm.tokenizers import cached_tokenizer_from_config

    return cached_tokenizer_from_config(vllm_config.model_config)


def markers_of(vllm_config: Any, config: MeridianConfig, tokenizer: Any) -> ThinkMarkers:
    """Return the markers; ValueError says that none are known, and what to do."""
    model_config = vllm_config.model_config
    served = model_config.served_model_name
    name: str = (served[0] if isinstance(served, list) else served) or model_config.model
    reasoning = getattr(vllm_config, "reasoning_config", None)
    put = tuple(getattr(reasoning, "reasoning_end_token_ids", None) or ())
    table = config.model_of(name)
    if table is not None:
        return _of_table(name, table, put)
    start = tuple(getattr(reasoning, "reasoning_start_token_ids", None) or ())
    if start and put:
        natural = tuple(getattr(reasoning, "natural_reasoning_end_token_ids", None) or put)
        force = put if put[-len(natural) :] == natural else natural
        opens = getattr(reasoning, "reasoning_parser", "") in OPENING_PARSERS
        return ThinkMarkers((start,), (natural,), force, opens)
    if tokenizer is not None:
        ids = [tokenizer.encode(text, add_special_tokens=False) for text in ("<think>", "</think>")]
        if all(len(each) == 1 for each in ids):
            return ThinkMarkers((tuple(ids[0]),), (tuple(ids[1]),), tuple(ids[1]))
    raise ValueError(
        f"BudgetLogits: nothing tells how thoughts of {name} end; " + _HINT.format(name=repr(name))
    )


def ends_of(vllm_config: Any, config: MeridianConfig) -> tuple[tuple[int, ...], ...]:
    """Return the ids that end thoughts, for `keep_thoughts`; ValueError as `markers_of`."""
    try:
        return markers_of(vllm_config, config, tokenizer_of(vllm_config)).end
    except ValueError as error:
        raise ValueError(
            f"kv_connector_extra_config.keep_thoughts: ends of thoughts are not known, leave it out; {error}"
        ) from error


def _of_table(name: str, table: Model, put: tuple[int, ...]) -> ThinkMarkers:
    markers = table.markers
    start, end = (tuple(m.ids for m in each if m.ids) for each in (markers.start, markers.end))
    if table.channel is not None or not end or len(end) < len(markers.end):
        raise ValueError(
            f"BudgetLogits: thoughts of {name} are marked by channels or by prose, and are not ended yet; "
            "leave BudgetLogits out, or give token ids in its [model] table"
        )
    # vLLM's own end may begin with a sentence that leads to the marker.
    force = put if any(put[-len(each) :] == each for each in end) else end[0]
    return ThinkMarkers(start, end, force, table.reasoning_parser in OPENING_PARSERS)
