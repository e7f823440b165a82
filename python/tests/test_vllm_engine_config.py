"""What a server's settings change of what its KV cache is of."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from test_vllm_latent import LATENT, FullAttentionSpec, models


def made(monkeypatch: pytest.MonkeyPatch, spec: Any = None, **described: object) -> Any:
    return models(monkeypatch, **described)(spec or FullAttentionSpec(head_size_v=LATENT))


def revision(monkeypatch: pytest.MonkeyPatch, **described: object) -> str:
    return str(made(monkeypatch, **described).cut().publication.scope.revision)


@pytest.mark.parametrize("kind", ["longrope", "su", "yarn"])
def test_positions_that_go_by_the_longest_prompt_tell_servers_apart(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """vLLM chooses the factors of such a model by `--max-model-len` alone."""
    nested = {"rope_type": kind, "original_max_position_embeddings": 4096, "note": "it's"}
    for rope in ({"rope_parameters": nested}, {"text_config": {"rope_scaling": nested}}):
        of = {
            length: revision(monkeypatch, hf_config=rope, max_model_len=length)
            for length in (1024, 4096, 8192)
        }
        assert of[1024] == of[4096] and (of[4096] == of[8192]) == (kind == "yarn")


def test_how_a_server_sees_pictures_tells_it_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_pixels(most: int) -> str:
        media = SimpleNamespace(mm_processor_kwargs={"max_pixels": most}, mm_processor_cache_gb=4)
        return revision(monkeypatch, multimodal_config=media)

    assert with_pixels(100) == with_pixels(100) != with_pixels(200)
    plain = SimpleNamespace(mm_processor_kwargs=None, mm_processor_cache_gb=4)
    assert revision(monkeypatch, multimodal_config=plain) == revision(monkeypatch)


@pytest.mark.parametrize(
    ("prompts", "gib", "named"), [(True, 0.0, True), (False, 4.0, True), (False, 0.0, False)]
)
def test_media_have_names_where_vllm_caches_anything(
    monkeypatch: pytest.MonkeyPatch, prompts: bool, gib: float, named: bool
) -> None:
    media = SimpleNamespace(mm_processor_cache_gb=gib)
    model = made(monkeypatch, multimodal_config=media, enable_prefix_caching=prompts)
    assert model.names_media == named


def test_a_model_without_media_names_those_that_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    assert made(monkeypatch, enable_prefix_caching=False).names_media


@pytest.mark.parametrize("non_causal", [False, True])
def test_whether_a_beginning_is_the_same_however_a_prompt_goes_on(
    monkeypatch: pytest.MonkeyPatch, non_causal: bool
) -> None:
    model = made(monkeypatch, FullAttentionSpec(head_size_v=LATENT, non_causal=non_causal))
    assert model.prefixes_stand_alone == (not non_causal)
