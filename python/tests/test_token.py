"""The vocabulary of a tokenizer.json."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from conftest import TESTDATA

from meridian.token import NoMarker, Vocabulary

BPE = """{
  "added_tokens": [
    {"id": 200005, "content": "<|channel|>", "special": true},
    {"id": 200008, "content": "<|message|>"},
    {"id": 7, "content": "<think>"},
    {"id": 8, "content": "</think>"},
    {"id": 9, "content": "</think>\\n"}
  ],
  "model": {"type": "BPE", "vocab": {"analysis": 35644, "Ġfinal": 2, "Ċ": 198, "don't": 5}, "merges": []}
}"""


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("<think>", (7,)),
        ("</think>", (8,)),
        ("</think>\n", (9,)),
        ("</think>\n\n", (9, 198)),
        ("<|channel|>analysis<|message|>", (200005, 35644, 200008)),
        (" final", (2,)),
        ("analysis", (35644,)),
        ("<think><think>", (7, 7)),
    ],
)
def test_marker(text: str, ids: tuple[int, ...]) -> None:
    assert Vocabulary.parse(BPE.encode()).marker(text) == ids


@pytest.mark.parametrize("text", ["", "<thought>", "analysi", "analysis analysis", "<|channel|>commentary"])
def test_no_marker(text: str) -> None:
    with pytest.raises(NoMarker):
        Vocabulary.parse(BPE.encode()).marker(text)


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("\0", "Ā"),
        (" ", "Ġ"),
        ("!", "!"),
        ("~", "~"),
        ("\x7f", "ġ"),
        ("\u0100", "ÄĢ"),
        ("á", "Ã¡"),
        ("í", "ÃŃ"),
        ("¬", "Â¬"),
        ("®", "Â®"),
        ("\xa0", "Âł"),
        ("\U0010ffff", "ôı¿¿"),
    ],
)
def test_bytes_are_spelled_as_in_byte_level_vocabularies(text: str, spelling: str) -> None:
    assert Vocabulary({}, {spelling: 1}).marker(text) == (1,)


def verdicts() -> list[list[str]]:
    """Read the corpus that holds Go and Python together."""
    lines = (TESTDATA / "token" / "verdicts.txt").read_text(encoding="utf-8").split("\n")
    return [line.split(" | ") for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("case", verdicts(), ids=lambda case: case[0])
def test_verdict(case: list[str]) -> None:
    _, text, want = case
    text = re.sub(r"«(.)\*(\d+)»", lambda found: found[1] * int(found[2]), text)
    if want == "refused":
        with pytest.raises(ValueError):
            Vocabulary.parse(text.encode())
        return
    marker, end = json.JSONDecoder().raw_decode(want)
    assert list(Vocabulary.parse(text.encode()).marker(marker)) == json.loads(want[end:])


def test_bytes_that_are_not_utf8_are_refused() -> None:
    with pytest.raises(ValueError):
        Vocabulary.parse(b'{"model": {"vocab": {"\xff": 1}}}')


def test_open_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(FileNotFoundError):
        Vocabulary.open(path)
    path.write_text("{}")
    with pytest.raises(ValueError, match=str(path)):
        Vocabulary.open(path)
    path.write_text(BPE)
    assert Vocabulary.open(path).marker("<think>") == (7,)
