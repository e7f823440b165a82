"""TOML as the Go side reads it.

tomli and Go's reader share one grammar, TOML 1.1, but not every verdict. Here
tomli is held to Go's: numbers must fit 64 bits, and a dotted key may not reach
into a table that a longer header made in passing. What is left are two absurd
inputs that both sides refuse under different paths: a date in the year 0, and
values nested hundreds deep.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import tomli

Key = tuple[str, ...]

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
    _refuse_wide_integers(document)
    return document


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value) and "inf" not in text:
        raise ValueError(f"{text} is too large for a float of 64 bits")
    return value


def _refuse_wide_integers(document: dict[str, Any]) -> None:
    pending: list[Any] = [document]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list):
            pending += value
        elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
            raise NotTOML(f"{value} does not fit 64 bits")


def _refuse_keys_into_passed_tables(text: str) -> None:
    """Refuse what tomli lets pass: [a.b.c], then [a] with a key b.d."""
    header: Key = ()
    passed: set[Key] = set()
    for mark, key, place in _statements(text):
        if mark == "=":
            for n in range(1, len(key)):
                if header + key[:n] in passed:
                    raise tomli.TOMLDecodeError(f"{key[n - 1]} is already defined", text, place)
            continue
        header = key
        if mark == "[[":  # a new element: what was said of the last one is forgotten
            passed = {table for table in passed if table[: len(key)] != key}
        passed.update(key[:n] for n in range(1, len(key) + 1))


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
