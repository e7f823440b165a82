"""The corpus in testdata/config, which the Go tests read as well: both sides give
every file the same verdict, with the same dotted paths.

run/config/corpus_test.go says how its files are written.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import ROOT, TESTDATA

from meridian import ConfigError, MeridianConfig, load_config
from meridian.fault import display

CORPUS = TESTDATA / "config"
ENV_VARIABLE = re.compile(r'([A-Za-z0-9_.-]+)=("(?:[^"\\]|\\.)*")')


def corpus_files(kind: str) -> list[Path]:
    files = sorted((CORPUS / kind).glob("*.toml"))
    assert files
    return files


def notes(file: Path, name: str) -> list[str]:
    """Return what follows "# name: " on the comment lines that open a file."""
    found = []
    for line in file.read_bytes().removeprefix(b"\xef\xbb\xbf").splitlines():
        if not line.startswith(b"# "):
            break
        if line.startswith(f"# {name}: ".encode()):
            found.append(line.decode().partition(": ")[2])
    return found


def fault_paths(error: ConfigError) -> str:
    return ", ".join(sorted(fault.path or "(syntax)" for fault in error.faults))


def shown(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(display, value))}]"
    return display(value)


def check_setting(cfg: MeridianConfig, note: str) -> None:
    path, _, want = note.partition(" = ")
    section, _, field = path.partition(".")
    value: object = getattr(cfg, section)
    if listed := re.fullmatch(r"(\w+)\[(\d+)\]\.(.*)", field):
        name, index, field = listed.groups()
        value = getattr(value, name)[int(index)]
    if section == "model":
        name, field = re.fullmatch(r'("(?:[^"\\]|\\.)*"|[^.]*)\.(.*)', field).groups()  # type: ignore[union-attr]
        value = cfg.model[json.loads(name) if name.startswith('"') else name]
    for part in field.split("."):
        value = getattr(value, part)
    assert shown(value) == want, path


def check_markers(cfg: MeridianConfig, note: str) -> None:
    name, _, want = note.partition(" ")
    markers = cfg.model[name].markers
    got = [[list(marker.ids) for marker in side] for side in (markers.start, markers.end)]
    assert " ".join(map(json.dumps, got)) == want


@pytest.mark.parametrize("file", corpus_files("good"), ids=lambda file: file.stem)
def test_good(file: Path) -> None:
    assert len(notes(file, "good")) == 1
    cfg = load_config(file, environ={})
    for note in notes(file, "sets"):
        check_setting(cfg, note)
    for note in notes(file, "markers"):
        check_markers(cfg, note)


@pytest.mark.parametrize("file", sorted(ROOT.glob("run/models/*.toml")), ids=lambda file: file.stem)
def test_shipped_models_are_good(file: Path) -> None:
    assert load_config(file, environ={}).model


@pytest.mark.parametrize("file", corpus_files("bad"), ids=lambda file: file.stem)
def test_bad(file: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        load_config(file, environ={})
    assert [fault_paths(refused.value)] == notes(file, "faults")
    for fault in refused.value.faults:
        assert fault.source == str(file)
        assert fault.reason
        assert str(fault) in str(refused.value)


def env_cases() -> list[list[str]]:
    lines = (CORPUS / "env.txt").read_text(encoding="utf-8").split("\n")
    cases = [line.split("|") for line in lines if line.strip() and not line.startswith("#")]
    return [[column.strip() for column in case] for case in cases]


@pytest.mark.parametrize("case", env_cases(), ids=lambda case: case[0])
def test_environment(case: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, file, variables, want = case
    monkeypatch.chdir(CORPUS)
    path = None if file == "-" else file
    environ = {name: json.loads(value) for name, value in ENV_VARIABLE.findall(variables)}
    try:
        cfg = load_config(path, environ=environ, directory=tmp_path, home=tmp_path)
    except ConfigError as error:
        assert fault_paths(error) == want
        assert all(fault.source for fault in error.faults)
        return
    assert want.startswith("ok")
    if want != "ok":
        check_setting(cfg, want.removeprefix("ok "))


def test_line_endings_are_as_written() -> None:
    """A checkout that rewrites line endings would make these tests say nothing."""
    for name in ("crlf", "crlf-in-a-text"):
        data = (CORPUS / "good" / f"{name}.toml").read_bytes()
        assert data.count(b"\r\n") == data.count(b"\n") > 0
