"""The vocabulary of a Hugging Face tokenizer.json: enough to turn a model's
think markers into token ids, not to split running text."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn, TypeGuard

from meridian.fault import quoted

MAX_FILE_BYTES = 256 << 20
"""Several times the largest tokenizer.json in use."""

MAX_NESTING = 100
"""Many times what a tokenizer.json has."""

_MAX_U32 = (1 << 32) - 1
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
_BRACKET = re.compile(r"[\[\]{}]")


class NoMarker(ValueError):
    """A text is not made of whole tokens of a vocabulary."""


class Vocabulary:
    """The tokens of one model.

    Added tokens are matched in raw text, before anything else; base tokens are
    in the model's own spelling.
    """

    def __init__(self, added: Mapping[str, int], base: Mapping[str, int]) -> None:
        self._added = added
        self._base = base
        # Where one added token starts with another, the longer one wins.
        self._longest_first = sorted(added, key=len, reverse=True)

    @classmethod
    def open(cls, path: str | Path) -> Vocabulary:
        """Read a tokenizer.json. The error is an OSError or a ValueError."""
        with open(path, "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise ValueError(f"{path} is larger than {MAX_FILE_BYTES} bytes")
        try:
            return cls.parse(data)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error

    @classmethod
    def parse(cls, data: bytes) -> Vocabulary:
        """Read the text of a tokenizer.json."""
        try:
            text = data.decode()
            file = json.loads(text, parse_int=_id_or_float, parse_constant=_no_constant)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"not a tokenizer.json: {error}") from error
        if _nesting(text) > MAX_NESTING:
            raise ValueError(f"not a tokenizer.json: it is nested deeper than {MAX_NESTING}")
        model = file.get("model") if isinstance(file, dict) else None
        if not isinstance(model, dict):
            raise ValueError('not a tokenizer.json: it has no "model"')
        return cls(_parse_added(file.get("added_tokens")), _parse_vocab(model.get("vocab")))

    def marker(self, text: str) -> tuple[int, ...]:
        """Return the ids that text is made of: added tokens, and between them
        whole vocabulary entries, as in "<|channel|>analysis<|message|>".

        Text that only a tokenizer's merges could split is refused, because ids
        that are merely plausible would never match what the model emits.
        """
        if not text:
            raise NoMarker("the text is empty")
        ids: list[int] = []
        while text:
            at, token = self._next_added(text)
            if at > 0:
                plain = text[:at]
                spelled = "".join(_BYTE_RUNES[byte] for byte in plain.encode())
                if spelled not in self._base:
                    raise NoMarker(f"{quoted(plain)} is not one token")
                ids.append(self._base[spelled])
            if token:
                ids.append(self._added[token])
            text = text[at + len(token) :]
        return tuple(ids)

    def _next_added(self, text: str) -> tuple[int, str]:
        """Find the first added token in text, or the end of text."""
        at, token = len(text), ""
        for candidate in self._longest_first:
            found = text.find(candidate)
            if 0 <= found < at:
                at, token = found, candidate
        return at, token


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _id_or_float(text: str) -> int | float:
    """Read a whole number as int only where it can be an id: -0 cannot, and int
    refuses to read thousands of digits."""
    return int(text) if text.isdigit() and len(text) <= len(str(_MAX_U32)) else float(text)


def _is_id(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value <= _MAX_U32


def _nesting(text: str) -> int:
    """Tell how deep the lists and objects of a JSON text lie in one another."""
    brackets = _BRACKET.findall(_STRING.sub("", text))
    return max(itertools.accumulate(1 if bracket in "[{" else -1 for bracket in brackets), default=0)


def _parse_added(tokens: Any) -> dict[str, int]:
    if tokens is None:
        return {}
    if not isinstance(tokens, list):
        raise ValueError('"added_tokens" is not a list')
    added: dict[str, int] = {}
    for i, token in enumerate(tokens):
        fields = token if isinstance(token, dict) else {}
        token_id, content = fields.get("id"), fields.get("content")
        if not _is_id(token_id) or not isinstance(content, str) or not content:
            raise ValueError(f"added token {i} lacks an id or a content")
        # Half a surrogate stands for U+FFFD, as everywhere else.
        content = content.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        added[content] = token_id
    return added


def _parse_vocab(vocab: Any) -> dict[str, int]:
    """Read the two shapes a vocabulary comes in: {"text": id} of BPE and
    WordPiece, and [["text", score], …] of Unigram, where the place is the id."""
    if isinstance(vocab, dict) and all(map(_is_id, vocab.values())):
        return vocab
    if not isinstance(vocab, list):
        raise ValueError('"model.vocab" is neither a map of ids nor a list of pieces')
    for i, piece in enumerate(vocab):
        if not isinstance(piece, list) or not piece or not isinstance(piece[0], str):
            raise ValueError(f'"model.vocab" entry {i} is not [text, score]')
    return {piece[0]: i for i, piece in enumerate(vocab)}


def _byte_runes() -> list[str]:
    """Spell bytes as byte-level BPE vocabularies do: each is one printable
    character, so that a space is Ġ and a newline is Ċ. Printable ASCII stays
    itself, so plain words read the same in every kind of vocabulary."""
    runes, spare = [], 256
    for byte in range(256):
        if 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or byte >= 0xAE:
            runes.append(chr(byte))
        else:
            runes.append(chr(spare))
            spare += 1
    return runes


_BYTE_RUNES = _byte_runes()
