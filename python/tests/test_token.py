"""The vocabulary of a tokenizer.json."""

from __future__ import annotations

from pathlib import Path

import pytest

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


def test_unigram_vocabulary() -> None:
    vocabulary = Vocabulary.parse(b'{"model": {"vocab": [["<unk>", 0], ["hello", -1.5]]}}')
    assert vocabulary.marker("hello") == (1,)


def test_first_and_last_id() -> None:
    vocabulary = Vocabulary.parse(b'{"model": {"vocab": {"a": 0, "b": 4294967295}}}')
    assert (vocabulary.marker("a"), vocabulary.marker("b")) == ((0,), (4294967295,))


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


@pytest.mark.parametrize(
    "text",
    [
        "",
        "vocab",
        "[]",
        '{"added_tokens": []}',
        '{"model": null}',
        '{"model": {}}',
        '{"model": {"vocab": null}}',
        '{"model": {"vocab": "a"}}',
        '{"model": {"vocab": {"a": -1}}}',
        '{"model": {"vocab": {"a": 1.0}}}',
        '{"model": {"vocab": {"a": NaN}}}',
        '{"model": {"vocab": [[]]}}',
        '{"model": {"vocab": [[1, 2]]}}',
        '{"model": {"vocab": {}}, "added_tokens": [{"content": "x"}]}',
        '{"model": {"vocab": {}}, "added_tokens": [{"id": 1, "content": ""}]}',
        '{"model": {"vocab": {}}, "added_tokens": [{"id": "1", "content": "x"}]}',
        '{"model": {"vocab": {}}, "added_tokens": [{"id": true, "content": "x"}]}',
        '{"model": {"vocab": {}}, "added_tokens": [{"id": 4294967296, "content": "x"}]}',
        '{"model": {"vocab": {}}, "added_tokens": [null]}',
        '{"model": {"vocab": {}}, "added_tokens": {"a": 1}}',
        "[" * 100_000,
    ],
    ids=lambda text: text[:60] or "empty",
)
def test_refused_files(text: str) -> None:
    with pytest.raises(ValueError):
        Vocabulary.parse(text.encode())


def test_open_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with pytest.raises(FileNotFoundError):
        Vocabulary.open(path)
    path.write_text("{}")
    with pytest.raises(ValueError, match=str(path)):
        Vocabulary.open(path)
    path.write_text(BPE)
    assert Vocabulary.open(path).marker("<think>") == (7,)
