"""What tells weights apart."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

from meridian.vllm.prompt import scope_of
from meridian.vllm.weights import digest_of


def model(at: Path, byte: int = 7) -> Path:
    at.mkdir()
    (at / "config.json").write_text("{}")
    (at / "one.safetensors").write_bytes(bytes([byte]) * 1_000_000)
    (at / "two.safetensors").write_bytes(b"short")
    return at


def test_the_same_weights_are_the_same_wherever_they_lie(tmp_path: Path) -> None:
    one, copy = model(tmp_path / "one"), model(tmp_path / "copy")
    os.utime(copy / "one.safetensors", (1, 1))
    assert digest_of(one) == digest_of(copy) != ""


def test_other_weights_are_others(tmp_path: Path) -> None:
    one = model(tmp_path / "one")
    digests = {digest_of(one), digest_of(model(tmp_path / "other", 8))}
    (one / "two.safetensors").write_bytes(b"shorn")
    os.utime(one / "two.safetensors", (1, 1))
    digests.add(digest_of(one))
    (one / "two.safetensors").rename(one / "three.safetensors")
    digests.add(digest_of(one))
    assert len(digests) == 4


def test_a_file_and_what_has_no_weights(tmp_path: Path) -> None:
    one = model(tmp_path / "one")
    assert digest_of(one / "one.safetensors")
    assert digest_of(tmp_path) == ""


def test_an_adapter_that_was_loaded_anew_is_another(tmp_path: Path) -> None:
    def scope(path: str) -> str:
        return scope_of(
            SimpleNamespace(lora_request=SimpleNamespace(lora_name="tone", lora_path=path))
        ).adapter

    one, other = str(model(tmp_path / "one")), str(model(tmp_path / "other", 8))
    assert scope(one) != scope(other) and scope(one).startswith("tone+")
    assert scope("hub/adapter") == "tone+hub/adapter" and scope("") == "tone"
