"""What tells weights apart."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from meridian.door import Scope
from meridian.vllm import weight_changes
from meridian.vllm.weight_changes import Weights, follow, is_empty
from meridian.vllm.weights import digest_of


def model(at: Path, byte: int = 7) -> Path:
    at.mkdir(parents=True)
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


def lora(number: int, path: str, *, load_inplace: bool = False) -> SimpleNamespace:
    return SimpleNamespace(lora_int_id=number, lora_name="tone", lora_path=path, load_inplace=load_inplace)


def with_lora(number: int, path: str) -> SimpleNamespace:
    return SimpleNamespace(lora_request=lora(number, path))


def scope_of(weights: Weights, request: object = None) -> Scope:
    scope = weights.scope_of(request)
    assert scope is not None
    return scope


def kept_scope_of(weights: Weights) -> Scope:
    scope = weights.kept_scope_of(None)
    assert scope is not None
    return scope


def test_an_adapter_that_was_loaded_anew_is_another(tmp_path: Path) -> None:
    weights = Weights("published")

    def adapter(number: int, path: str) -> str:
        return scope_of(weights, with_lora(number, path)).adapter

    one, other = str(model(tmp_path / "one")), str(model(tmp_path / "other", 8))
    assert adapter(1, one) != adapter(2, other) and adapter(1, one).startswith("tone+")
    assert adapter(3, "hub/adapter") == "tone+hub/adapter" and adapter(4, "") == "tone"


def load(weights: Weights, what: SimpleNamespace, *, empty: bool = False) -> None:
    weights.adapter_loads(what, empty=empty)
    weights.adapter_loaded(what)


def test_an_adapter_is_what_was_loaded(tmp_path: Path) -> None:
    """vLLM has the weights from before, whatever the files are now, until it loads them."""
    weights, path = Weights("published"), model(tmp_path / "adapter")
    load(weights, lora(1, str(path)))
    before = scope_of(weights, with_lora(1, str(path))).adapter
    (path / "one.safetensors").write_bytes(b"other weights")
    assert weights.scope_of(with_lora(1, str(path))) is None
    assert scope_of(weights).adapter == "", "requests without it are shared"
    load(weights, lora(1, str(path)))
    assert weights.scope_of(with_lora(1, str(path))) is None, "vLLM has it already, and loads nothing"
    weights.adapter_loads(lora(1, str(path), load_inplace=True), empty=True)
    weights.emptied()
    assert weights.scope_of(with_lora(1, str(path))) is None, "it was not loaded"
    load(weights, lora(1, str(path), load_inplace=True), empty=True)
    assert scope_of(weights, with_lora(1, str(path))).adapter not in ("", before)
    after = scope_of(weights, with_lora(1, str(path))).adapter
    for file in path.iterdir():
        file.unlink()
    path.rmdir()
    assert scope_of(weights, with_lora(1, str(path))).adapter == after, "vLLM still has it"


def test_an_adapter_that_changed_while_it_was_loaded_has_a_name_of_its_own(tmp_path: Path) -> None:
    names = set()
    for server in ("one", "other"):
        weights, path = Weights("published"), model(tmp_path / server / "adapter")
        weights.adapter_loads(lora(1, str(path)), empty=True)
        (path / "one.safetensors").write_bytes(b"other weights")
        weights.adapter_loaded(lora(1, str(path)))
        assert weights.scope_of(with_lora(1, str(path))) is None
        shutil.rmtree(path)
        names.add(scope_of(weights, with_lora(1, str(path))).adapter)
    assert len(names) == 2 and "" not in names


def test_an_adapter_whose_files_go_while_they_are_read_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, path = Weights("published"), model(tmp_path / "adapter")

    def gone(_: object) -> str:
        raise FileNotFoundError

    with monkeypatch.context() as patched:
        patched.setattr(weight_changes, "digest_of", gone)
        assert weights.scope_of(with_lora(1, str(path))) is None
    assert scope_of(weights, with_lora(1, str(path))).adapter.startswith("tone+"), "they are there again"
    with monkeypatch.context() as patched:
        patched.setattr(weight_changes, "digest_of", gone)
        load(weights, lora(1, str(path)))
    assert weights.scope_of(with_lora(1, str(path))) is None, "which were loaded is not known"


@pytest.mark.parametrize("number", [1, 2], ids=["in place", "by another number"])
def test_blocks_of_an_adapter_are_not_those_of_the_next(tmp_path: Path, number: int) -> None:
    """vLLM finds them by its name and path alone."""
    weights, path = Weights("published"), model(tmp_path / "adapter")
    load(weights, lora(1, str(path)))
    (path / "one.safetensors").write_bytes(b"other weights")
    load(weights, lora(number, str(path), load_inplace=number == 1))
    assert weights.scope_of(with_lora(number, str(path))) is None
    weights.emptied()
    assert scope_of(weights, with_lora(number, str(path))).adapter.startswith("tone+")


def test_weights_that_change_are_of_no_name_that_another_has() -> None:
    one, other = Weights("published"), Weights("published")
    assert scope_of(one) == scope_of(other) == Scope() and one.shared
    one.changed(empty=True)
    other.changed(empty=True)
    assert one.scope_of(None) is None and not one.shared, "no other server could take it"
    first = kept_scope_of(one).revision
    assert first.startswith("published") and first != kept_scope_of(other).revision
    one.changed(empty=True)
    assert kept_scope_of(one).revision not in ("published", "", first)


def test_a_version_is_shared_by_those_that_are_told_it() -> None:
    one, other, third = Weights("published"), Weights("published"), Weights("of other files")
    for weights in (one, other, third):
        weights.changed(empty=True)
        weights.named("step-7 " * 1000)
    assert scope_of(one) == scope_of(other) != scope_of(third)
    assert one.shared and len(scope_of(one).revision) < 64
    other.changed(empty=True)
    other.named("step-8")
    assert scope_of(one) != scope_of(other)


def test_nothing_is_shared_while_blocks_may_be_of_either() -> None:
    weights = Weights("published")
    weights.changed(empty=False)
    assert weights.scope_of(None) is None and weights.kept_scope_of(None) is None and not weights.shared
    weights.named("step-1")
    assert weights.scope_of(None) is None and weights.kept_scope_of(None) is None, (
        "a name does not make the blocks anew"
    )
    weights.emptied()
    assert scope_of(weights).revision.startswith("published@")
    weights.emptied()
    assert weights.shared


class Engine:
    """A vLLM's EngineCore, of which a connector hears."""

    def __init__(self, *connectors: object) -> None:
        self.scheduler = SimpleNamespace(connector=SimpleNamespace(_connectors=connectors))
        self.calls: list[object] = []
        self.emptied = True

    def collective_rpc(self, method: object, timeout: object = None, args: tuple[()] = ()) -> list[object]:
        self.calls.append(method)
        return [method]

    def add_lora(self, lora_request: object) -> bool:
        if lora_request == "broken":
            raise ValueError
        return True

    def reset_prefix_cache(self, reset_running_requests: bool = False) -> bool:
        if reset_running_requests and not self.emptied:
            raise RuntimeError
        return self.emptied

    def set_weight_version(self, weight_version: str) -> None:
        self.calls.append(weight_version)


class Heard:
    """A connector, with the engine's calls at the time that it hears."""

    def __init__(self) -> None:
        self.all: list[object] = []
        self.engine: Engine | None = None

    def weights_change(self, by: str) -> None:
        assert self.engine is None or by not in self.engine.calls, "it hears before anything changes"
        self.all.append(by)

    def weights_named(self, version: str) -> None:
        self.all.append(f"is {version}")

    def adapter_loads(self, lora: object) -> None:
        self.all.append(f"loads {lora}")

    def adapter_loaded(self, lora: object) -> None:
        self.all.append(f"loaded {lora}")

    def cache_resets(self) -> None:
        self.all.append("resets")

    def cache_was_reset(self, done: bool) -> None:
        self.all.append(f"reset {done}")


def test_a_connector_hears_of_its_engine_alone() -> None:
    class Version(Engine):
        pass

    assert follow(Version) and follow(Version), "twice is once"
    one, other = Heard(), Heard()
    engine, another = Version(object(), one), Version(other)
    one.engine = engine
    assert engine.collective_rpc("update_weights") == ["update_weights"]
    engine.collective_rpc("compute_weight_checksums")
    engine.collective_rpc(method=len)
    engine.emptied = False
    assert engine.reset_prefix_cache() is False
    with pytest.raises(RuntimeError):
        engine.reset_prefix_cache(reset_running_requests=True)
    engine.emptied = True
    assert engine.reset_prefix_cache(reset_running_requests=True) is True
    engine.set_weight_version("7")
    engine.set_weight_version(weight_version="8")
    another.add_lora("lora")
    with pytest.raises(ValueError):
        another.add_lora("broken")
    del another.scheduler
    another.collective_rpc("while it starts")
    resets = ["resets", "reset False", "resets", "reset False", "resets", "reset True"]
    assert one.all == ["update_weights", "len", *resets, "is 7", "is 8"]
    assert other.all == ["loads lora", "loaded lora", "loads broken"]
    assert engine.calls == ["update_weights", "compute_weight_checksums", len, "7", "8"]


def test_a_vllm_that_has_none_of_it_is_not_followed() -> None:
    assert not follow(type("Other", (), {}))


@pytest.mark.parametrize(
    ("used", "cached", "held", "empty"),
    [(1, 0, 0, True), (2, 0, 0, False), (1, 1, 0, False), (0, 0, 0, True), (3, 0, 2, True), (4, 0, 2, False)],
)
def test_when_blocks_hold_nothing(used: int, cached: int, held: int, empty: bool) -> None:
    pool = SimpleNamespace(
        num_gpu_blocks=10,
        get_num_free_blocks=lambda: 10 - used,
        cached_block_hash_to_block=dict.fromkeys(range(cached)),
    )
    assert is_empty(pool, held) == empty
