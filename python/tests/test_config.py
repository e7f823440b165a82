"""load_config beyond the corpus: where it looks, what it returns, what its faults say."""

from __future__ import annotations

import dataclasses
import os
import typing
from pathlib import Path

import pytest
from conftest import TESTDATA

import meridian
from meridian import ConfigError, Fault, MeridianConfig, load_config
from meridian._config_schema import Field, schema
from meridian.config import MAX_FILE_BYTES, Backend, Channel, Effort, Model, StoreDisk, StoreS3
from meridian.fault import display, nearest, quoted
from meridian.markers import Marker, Markers


def parse(tmp_path: Path, text: str | bytes) -> MeridianConfig:
    file = tmp_path / "f.toml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return load_config(file, environ={})


def faults_of(tmp_path: Path, text: str | bytes) -> list[Fault]:
    with pytest.raises(ConfigError) as refused:
        parse(tmp_path, text)
    return refused.value.faults


NESTED = {"channel": Channel, "effort": Effort, "disk": StoreDisk, "s3": StoreS3}


def field_names(table: type) -> set[str]:
    """The dotted names of a dataclass's fields, those of nested tables included."""
    assert dataclasses.is_dataclass(table)
    names = set()
    for field in dataclasses.fields(table):
        if field.name in NESTED:
            names |= {f"{field.name}.{name}" for name in field_names(NESTED[field.name])}
        elif field.name not in ("markers", "backend"):
            names.add(field.name)
    return names


def test_dataclasses_match_the_schema() -> None:
    tables = typing.get_type_hints(MeridianConfig)
    tables |= {"model": Model, "gateway.backend": Backend}
    assert {name: field_names(table) for name, table in tables.items()} == {
        name: set(section.fields) for name, section in schema().items()
    }


def test_fields_have_the_types_of_their_kinds() -> None:
    kinds: dict[str, typing.Any] = {"bool": bool, "int": int, "float": float}
    kinds |= {"size": int | typing.Literal["auto"]}
    kinds |= dict.fromkeys(("enum", "text", "endpoint", "listen"), str)
    kinds |= {"tokens": tuple[int, ...], "texts": tuple[str, ...], "enums": tuple[str, ...]}
    kinds |= {"uids": tuple[int, ...], "publisher": str, "paths": tuple[str, ...]}
    tables = typing.get_type_hints(MeridianConfig) | {"model": Model, "gateway.backend": Backend}
    for name, section in schema().items():
        hints = typing.get_type_hints(tables[name])
        for inner, nested in NESTED.items():
            hints |= {f"{inner}.{field}": hint for field, hint in typing.get_type_hints(nested).items()}
        for field in section.fields.values():
            assert hints[field.name] in (kinds[field.kind], kinds[field.kind] | None), field.name


def test_every_default_is_valid() -> None:
    for section in schema().values():
        for field in section.fields.values():
            assert (field.default is not None) or section.named or section.listed, field.name
            if field.default is not None:
                assert field.check(field.default)[1] == [], field.name


def test_defaults_have_their_types(tmp_path: Path) -> None:
    cfg = load_config(environ={}, directory=tmp_path, home=tmp_path)
    assert isinstance(cfg.scheduler.think_tpot_budget_ms, float)
    assert cfg.scheduler.max_think_tokens == 32768
    assert cfg.kv_memory.block_size_bytes == "auto"
    assert cfg.telemetry.prometheus_listen == "127.0.0.1:9464"
    assert cfg.entropy.enabled is True
    assert dict(cfg.model) == {}


def test_empty_file_is_the_defaults(tmp_path: Path) -> None:
    nothing = load_config(environ={}, directory=tmp_path, home=tmp_path)
    assert parse(tmp_path, "") == nothing


def test_a_configuration_cannot_be_changed(tmp_path: Path) -> None:
    cfg = parse(tmp_path, "[model.m]\nthink_end_token_ids = [8]\n")
    with pytest.raises(dataclasses.FrozenInstanceError):
        cfg.scheduler.max_think_tokens = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        cfg.model["n"] = cfg.model["m"]  # type: ignore[index]


def test_search_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, home = tmp_path / "work", tmp_path / "home"
    (home / ".config" / "meridian").mkdir(parents=True)
    directory.mkdir()

    def write(path: Path, tokens: int) -> Path:
        path.write_text(f"[scheduler]\nmax_think_tokens = {tokens}\n")
        return path

    def found(path: Path | None = None, environ: dict[str, str] | None = None) -> int:
        cfg = load_config(path, environ=environ or {}, directory=directory, home=home)
        return cfg.scheduler.max_think_tokens

    assert found() == 32768
    write(home / ".config" / "meridian" / "meridian.toml", 1001)
    assert found() == 1001
    write(directory / "meridian.toml", 1002)
    assert found() == 1002
    mine = write(tmp_path / "mine.toml", 1003)
    assert found(mine) == 1003
    assert found(mine, {"MERIDIAN_SCHEDULER_MAX_THINK_TOKENS": "1004", "MERIDIAN_REQUIRE": "cc"}) == 1004

    monkeypatch.chdir(directory)
    monkeypatch.setenv("HOME", str(home))
    assert load_config().scheduler.max_think_tokens == 1002
    (directory / "meridian.toml").unlink()
    assert load_config().scheduler.max_think_tokens == 1001
    monkeypatch.setenv("MERIDIAN_SCHEDULER_MAX_THINK_TOKENS", "1005")
    assert load_config().scheduler.max_think_tokens == 1005
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("MERIDIAN_SCHEDULER_MAX_THINK_TOKENS")
    assert load_config().scheduler.max_think_tokens == 32768
    monkeypatch.setenv("MERIDIAN_CONFIG", str(mine))
    assert load_config().scheduler.max_think_tokens == 1003
    with pytest.raises(FileNotFoundError):
        load_config(environ={"MERIDIAN_CONFIG": str(tmp_path / "missing.toml")})


def test_a_home_that_cannot_be_entered_holds_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load_config(environ={}, directory=tmp_path, home="/dev/null")
    home, stat = tmp_path / "home", os.stat

    def barred(path: str) -> os.stat_result:
        if path.startswith(str(home)):
            raise PermissionError(path)
        return stat(path)

    monkeypatch.setattr(os, "stat", barred)
    assert load_config(environ={}, directory=tmp_path, home=home)
    with pytest.raises(PermissionError):
        load_config(environ={}, directory=home)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_config(tmp_path / "missing.toml")
    with pytest.raises(IsADirectoryError):
        load_config(tmp_path)
    (tmp_path / "plain").write_text("")
    with pytest.raises(NotADirectoryError):
        load_config(directory=tmp_path / "plain")


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    assert MAX_FILE_BYTES == 128 << 10  # as in Go
    assert parse(tmp_path, b"#" * MAX_FILE_BYTES)
    (fault,) = faults_of(tmp_path, b"#" * (MAX_FILE_BYTES + 1))
    assert "larger" in fault.reason


def test_what_faults_say(tmp_path: Path) -> None:
    file = tmp_path / "f.toml"
    file.write_text(
        """
[scheduler]
max_think_tokns = 4
min_think_tokens = 40000
think_tpot_budget_ms = nan
[disagg]
enabled = true
[logging]
level = "wran"
[model.qwen3]
think_start_token_ids = [1, -2]
channel = { open = "a", clos = 1 }
[modle.x]
"""
    )
    with pytest.raises(ConfigError) as refused:
        load_config(file, environ={"MERIDIAN_ENTROPY_EMA_ALFA": "1", "MERIDIAN_ENTROPY_ENABLED": "off"})
    given = "must be given, because the other channel fields are"
    alpha = "environment MERIDIAN_ENTROPY_EMA_ALFA: entropy.ema_alfa"
    want = f"""
{file}: disagg.fabric: must name a fabric while disagg.enabled is true; use "meridian"; got "none"
{alpha}: unknown field; did you mean MERIDIAN_ENTROPY_EMA_ALPHA?
environment MERIDIAN_ENTROPY_ENABLED: entropy.enabled: must be a boolean; got "off"
{file}: logging.level: must be one of "debug", "info", "warn", "error"; got "wran"; did you mean warn?
{file}: model.qwen3.channel.answer: {given}
{file}: model.qwen3.channel.clos: unknown field; did you mean close?
{file}: model.qwen3.channel.close: {given}
{file}: model.qwen3.channel.message: {given}
{file}: model.qwen3.channel.think: {given}
{file}: model.qwen3.think_start_token_ids[1]: must be a token id from 0 to 4294967295; got -2
{file}: modle: unknown section; did you mean model?
{file}: scheduler.max_think_tokns: unknown field; did you mean max_think_tokens?
{file}: scheduler.min_think_tokens: must be < scheduler.max_think_tokens, which is 32768; got 40000
{file}: scheduler.think_tpot_budget_ms: must be a finite number > 0; got nan
"""
    assert str(refused.value) == want.strip()


def test_a_syntax_fault_says_where(tmp_path: Path) -> None:
    (fault,) = faults_of(tmp_path, '[logging]\nlevel = "de\nbug"\n')
    assert (fault.path, fault.line, fault.column) == ("", 2, 12)
    assert str(fault).startswith(f"{tmp_path / 'f.toml'}:2:12: not valid TOML: ")
    (fault,) = faults_of(tmp_path, "[model.m.channel]\n[model]\nm.source = 'x'\n")
    assert fault.line == 3
    (fault,) = faults_of(tmp_path, b"# \xff")
    assert "utf-8" in fault.reason


@pytest.mark.parametrize(
    "text",
    [
        "[[a]]\nb.c = 1\n[a.b.d]\n[[a]]\nb.c = 1\n",  # the second element is new
        "[a]\nb.c = 1\nb.d = 2\n[a.b.e]\n",
        "[a.b]\n[a]\nc.d = 1\n",
        "[a.b]\n[a]\n\"b.c\".d = '''\n[a.b.c]\nx.y = 1'''\n",
        'x = { a.b = 1 } # [x.a]\ny = [ # [y.a]\n  "[y.a]",\n]\ny1.a = "\\"\\n[y1.a]\\n"\n',
    ],
)
def test_dotted_keys_that_are_no_trespass(tmp_path: Path, text: str) -> None:
    assert all(fault.path for fault in faults_of(tmp_path, text))


def test_input_over_a_limit_is_one_fault(tmp_path: Path) -> None:
    for text in ("a = " + "[" * 10_000 + "]" * 10_000, ".".join("a" * 5000) + " = 1", "a = " + "9" * 5000):
        (fault,) = faults_of(tmp_path, text)
        assert fault.reason.startswith("not valid TOML: ")


def test_markers(tmp_path: Path) -> None:
    tokenizer = TESTDATA / "config" / "tokenizers" / "think.json"
    text = f"""[model.m]
tokenizer = "{tokenizer}"
think_start_texts = ["<think>"]
think_end_texts = ["</think>", "</think><think>"]
[model.plain]
think_end_texts = ["</think>"]
[model.ids]
think_start_token_ids = [7]
think_end_token_ids = [8, 9]
"""
    models = parse(tmp_path, text).model
    assert models["m"].markers == Markers(
        start=(Marker((7,), "<think>"),),
        end=(Marker((8,), "</think>"), Marker((8, 7), "</think><think>")),
    )
    assert models["plain"].markers == Markers(end=(Marker((), "</think>"),))
    assert models["ids"].markers == Markers((Marker((7,)),), (Marker((8,)), Marker((9,))))
    assert models["ids"].think_end_token_ids == (8, 9)
    assert (models["ids"].tokenizer, models["ids"].channel) == (None, None)


def test_a_tokenizer_is_relative_to_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "t.json").write_text('{"model": {"vocab": {"x": 3}}}')
    file = tmp_path / "models" / "m.toml"
    file.write_text('[model.m]\ntokenizer = "./t.json"\nthink_end_texts = ["x"]\n')
    monkeypatch.chdir(tmp_path)
    for path in (file, Path("models/m.toml")):
        assert load_config(path, environ={}).model["m"].markers.end == (Marker((3,), "x"),)
    monkeypatch.chdir(tmp_path / "models")
    assert load_config("m.toml", environ={}).model["m"].markers.end == (Marker((3,), "x"),)


def test_a_range_without_bounds_still_refuses_nan() -> None:
    field = Field("x", "float")
    assert field.check(1e300) == (1e300, [])
    assert [problem.reason for problem in field.check(float("nan"))[1]] == ["must be a finite number"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[entropy]\nrpdi_threshold = inf", "must be a finite number > 1; got inf"),
        ("[entropy]\nema_alpha = -inf", "must be a finite number ≥ 0.001 and ≤ 1; got -inf"),
        ("[entropy]\nema_alpha = 1e300", "must be ≥ 0.001 and ≤ 1; got 1e+300"),
        ("[scheduler]\nmax_think_tokens = 1024.0", "must be an integer; got 1024.0"),
        ("[gateway]\nmax_running = 1048577", "must be ≥ 1 and ≤ 1048576; got 1048577"),
        ('[logging]\nlevel = "INFO"', '; got "INFO"; did you mean info?'),
        ('[tls]\nmode = "on"', 'must be one of "auto", "off", "required"; got "on"'),
        ("[model.m]\nthink_end_token_ids = [1, 2.0]", "must be a token id from 0 to 4294967295; got 2.0"),
    ],
)
def test_faults_do_not_contradict_themselves(text: str, told: str, tmp_path: Path) -> None:
    [fault] = faults_of(tmp_path, text)
    assert str(fault).endswith(told)


def test_a_marker_of_several_tokens_is_no_list_of_ids() -> None:
    with pytest.raises(ConfigError, match=r"is several tokens, \[8, 7\]; leave the ids out; got \[8, 7\]"):
        load_config(TESTDATA / "config" / "bad" / "tokenizer-needs-several-ids.toml", environ={})


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("enable", "enabled"),
        ("fabrics", "fabric"),
        ("offload_treshold_block", "offload_threshold_blocks"),
        ("zebra", ""),
        ("", ""),
        ("ENABLED", "enabled"),
        ("Fabric", "fabric"),
        ("f", ""),
        ("ab", ""),
    ],
)
def test_nearest(typo: str, meant: str) -> None:
    assert nearest(typo, ["enabled", "fabric", "offload_threshold_blocks"]) == meant


def test_nearest_is_the_first_of_the_closest_and_not_too_far() -> None:
    assert nearest("abcde", ["abcdx", "abcdy"]) == "abcdx"
    assert nearest("abcdefghijkl", ["abcdefgh"]) == "abcdefgh"
    assert nearest("abcdefghijkl", ["abcdefg"]) == ""
    assert nearest("abcdefgh", ["abcdefghijk"]) == ""
    assert nearest("abcd", ["cabd"]) == "cabd"
    assert nearest("foo", ["door"]) == nearest("test", ["tls"]) == ""


def test_display() -> None:
    values: list[object] = [True, 1, 1.5, 80.0, "a\n", {}, [1, 2]]
    assert list(map(display, values)) == ["true", "1", "1.5", "80.0", '"a\\n"', "a table", "a list of 2"]
    assert display("x" * 58) == '"' + "x" * 58 + '"'
    assert display("x" * 59) == '"' + "x" * 58 + "…"
    assert quoted("\x80\uffff\U000110bd") == '"\\u0080\\uffff\\U000110bd"'
    assert quoted('ü\x7f\u200b\U000e0001"\\') == '"ü\\u007f\\u200b\\U000e0001\\"\\\\"'
    assert quoted("\a\v\b\udc80") == '"\\u0007\\u000b\\b\ufffd"'


def test_package() -> None:
    assert meridian.load_config is load_config
    assert meridian.__version__
    assert set(meridian.__all__) <= set(dir(meridian))


def test_the_table_of_a_model(tmp_path: Path) -> None:
    """Go's config.ModelOf has the same rule."""
    table = '[model."{}"]\nthink_end_token_ids = [{}]\nthink_start_token_ids = [1]\n'
    table += "supports_think_disable = false\n"
    file = tmp_path / "meridian.toml"
    file.write_text(table.format("Qwen/Qwen3-32B", 2) + table.format("a.b", 3) + table.format("x/A-b", 4))
    config = load_config(file, environ={})
    for name, end in {"Qwen/Qwen3-32B": 2, "other/qwen3_32b": 2, "a.b": 3}.items():
        model = config.model_of(name)
        assert model is not None and model.think_end_token_ids == (end,)
    assert config.model_of("qwen3") is None
    with pytest.raises(ValueError, match=r"fits a\.b and x/A-b"):
        config.model_of("A_B")
