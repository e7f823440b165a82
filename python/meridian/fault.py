"""What is wrong with a configuration, in words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPES = {c: f"\\{e}" for c, e in zip('\b\t\n\f\r"\\', 'btnfr"\\', strict=True)}
_LONGEST_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong."""

    path: str
    """Dotted name of the field; empty when the file is no TOML."""
    source: str
    """The file, or "environment NAME"."""
    reason: str
    given: str = ""
    """The offending value; empty when nothing was given."""
    nearest: str = ""
    """The valid name closest to a mistyped one."""
    line: int = 0
    """Known where the file is no TOML, else 0."""
    column: int = 0

    def __str__(self) -> str:
        place = f":{self.line}:{self.column}" if self.line else ""
        path = f"{self.path}: " if self.path else ""
        given = f"; got {self.given}" if self.given else ""
        nearest = f"; did you mean {self.nearest}?" if self.nearest else ""
        return f"{self.source}{place}: {path}{self.reason}{given}{nearest}"


class ConfigError(ValueError):
    """Every fault of a configuration, at once."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = sorted(faults, key=lambda fault: fault.path)
        super().__init__("\n".join(map(str, self.faults)))


def quoted(text: str) -> str:
    """Write text as a basic string of TOML."""
    return '"' + "".join(map(_escaped, text)) + '"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    if 0xD800 <= code < 0xE000:
        return "\ufffd"  # a byte that is no UTF-8, from the environment
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def quoted_key(key: str) -> str:
    """Write a key as it stands in a dotted path: quoted only where TOML would have to."""
    return key if _BARE_KEY.fullmatch(key) else quoted(key)


def display(value: object) -> str:
    """Write a value as the file would, shortened."""
    match value:
        case bool():
            text = str(value).lower()
        case str():
            text = quoted(value)
        case dict():
            return "a table"
        case list():
            return f"a list of {len(value)}"
        case float():
            text = repr(value)
        case _:
            text = str(value)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Return the candidate that name was probably meant to be, or "". Case does
    not count. A candidate that shares less than half of either was not meant: "on"
    is no mistyped "off", and "foo" no "door"."""
    typed = name.lower().encode(errors="surrogateescape")
    best, best_distance = "", min(max(2, len(typed) // 3), len(typed) // 2) + 1
    for candidate in candidates:
        meant = candidate.lower().encode()
        if abs(len(meant) - len(typed)) >= best_distance:
            continue  # each byte more is an edit
        distance = _edit_distance(typed, meant)
        if distance < best_distance and distance <= len(meant) // 2:
            best, best_distance = candidate, distance
    return best


def _edit_distance(a: bytes, b: bytes) -> int:
    """Levenshtein's."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        diagonal, row[0] = row[0], i + 1
        for j, y in enumerate(b):
            cost = diagonal + (x != y)
            diagonal = row[j + 1]
            row[j + 1] = min(cost, diagonal + 1, row[j] + 1)
    return row[-1]
