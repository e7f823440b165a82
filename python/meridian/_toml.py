"""TOML as the Go side reads it.

tomli and Go's reader share one grammar, TOML 1.1, but not every verdict. Here
tomli is held to Go's: numbers must fit 64 bits, a dotted key may not reach into
a table that a longer header made in passing, and keys and nesting have the limits
of run/config/limits.go.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any, Final

import tomli

MAX_KEY_BYTES: Final = 256
MAX_DEPTH: Final = 64
"""Of tables and lists in one another."""

Key = tuple[str, ...]
Tree = dict[str, "Tree"]

_TOKEN = re.compile(
    r'''
      """ (?: [^\\] | \\. )*? "{3,5}
    | \'\'\' .*? \'{3,5}
    | " (?: [^"\\] | \\. )* "
    | ' [^']* '
    | \# [^\n]*
    | [A-Za-z0-9_-]+
    | .
    ''',
    re.DOTALL | re.VERBOSE,
)


class NotTOML(ValueError):
    """Says why a text is not valid TOML and, where known, in which place."""

    def __init__(self, reason: str, line: int = 0, column: int = 0) -> None:
        super().__init__(reason)
        self.line = line
        self.column = column


def read(data: bytes) -> dict[str, Any]:
    """Read a TOML document."""
    try:
        text = data.decode().replace("\r\n", "\n")
        document = tomli.loads(text, parse_float=_finite)
        _refuse_keys_into_passed_tables(text)
    except tomli.TOMLDecodeError as error:
        raise NotTOML(error.msg, error.lineno, error.colno) from error
    except (ValueError, RecursionError) as error:
        raise NotTOML(str(error)) from error
    _refuse_over_limit(document)
    return document


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value) and "inf" not in text:
        raise ValueError(f"{text} is too large for a float of 64 bits")
    return value


def _refuse_over_limit(document: dict[str, Any]) -> None:
    """Refuse what TOML allows and no reader has to bear."""
    pending: list[tuple[Any, int]] = [(document, 0)]
    while pending:
        value, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise NotTOML(f"tables and lists stand in one another more than {MAX_DEPTH} deep")
        if isinstance(value, dict):
            if any(len(key.encode()) > MAX_KEY_BYTES for key in value):
                raise NotTOML(f"a key is longer than {MAX_KEY_BYTES} bytes")
            pending += [(inner, depth + 1) for inner in value.values()]
        elif isinstance(value, list):
            pending += [(element, depth + 1) for element in value]
        elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise NotTOML(f"{value} does not fit 64 bits")


def _refuse_keys_into_passed_tables(text: str) -> None:
    """Refuse what tomli lets pass: [a.b.c], then [a] with a key b.d."""
    passed: Tree = {}
    table = passed
    for mark, key, place in _statements(text):
        if mark == "=":
            if len(key) > 1 and key[0] in table:
                raise tomli.TOMLDecodeError(f"{key[0]} is already defined", text, place)
            continue
        table = passed
        for part in key:
            table = table.setdefault(part, {})
        if mark == "[[":  # a new element: what was said of the last one is forgotten
            table.clear()


def _statements(text: str) -> Iterator[tuple[str, Key, int]]:
    """Yield "[", "[[" or "=", the key it stands by, and its place, for each
    statement of a text that is known to be TOML."""
    mark, depth, in_value = "", 0, False
    key: list[str] = []
    for token in _TOKEN.finditer(text + "\n"):
        word = token.group()
        if in_value:
            depth += (word in "[{") - (word in "]}")
            if word == "\n" and depth == 0:
                mark, key, in_value = "", [], False
        elif word == "=":
            yield "=", tuple(key), token.start()
            in_value = True
        elif word == "[":
            mark += word
        elif word == "\n":
            if mark:
                yield mark, tuple(key), token.start()
            mark, key = "", []
        elif word[0] in "\"'":
            key.append(tomli.loads(f"key = {word}")["key"])
        elif word[0] not in "#.] \t":
            key.append(word)
