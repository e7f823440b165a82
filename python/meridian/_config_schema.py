"""The schema of meridian.toml, as schema.json holds it, and what each kind of
field accepts. The file is made from the Go schema; nothing here names a field."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, Final

from meridian.fault import nearest, quoted

ENV_PREFIX: Final = "MERIDIAN_"
AUTO: Final = "auto"
"""The value of a size that is found out when an engine registers."""

_MAX_U32: Final = (1 << 32) - 1
_MAX_PORT: Final = (1 << 16) - 1

_KIND_NAMES: Final = {
    "bool": "a boolean",
    "int": "an integer",
    "float": "a number",
    "text": "a string",
    "enum": "a string",
    "enums": "a list of strings",
    "size": 'an integer or "auto"',
    "tokens": "a list of token ids",
    "texts": "a list of strings",
    "uids": "a list of user ids",
    "endpoint": "a http(s) URL",
    "listen": "a host:port",
    "publisher": "a ZeroMQ endpoint",
    "paths": "a list of paths",
}

_PORT: Final = r":0*(?P<port>[0-9]{1,5})"
_LISTEN: Final = re.compile(rf"(?:\[[^\[\]]*\]|[^:\[\]]*){_PORT}")
_ENDPOINT: Final = re.compile(
    rf"https?://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?:{_PORT})?(?:/[!$&->@-~]*)?"
)
_PUBLISHER: Final = re.compile(rf"tcp://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+|\*){_PORT}|ipc://[!-~]+")
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._~-]+)+")


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong with a value, or with one element of a list."""

    reason: str
    given: object
    nearest: str = ""
    suffix: str = ""
    """Names the element, as in "[2]"."""


@dataclass(frozen=True, slots=True)
class Field:
    """One setting."""

    name: str
    """The path within the section, such as "max_think_tokens"."""
    kind: str
    default: object = None
    min: float = -math.inf
    max: float = math.inf
    min_open: bool = False
    max_open: bool = False
    choices: Sequence[Mapping[str, str]] = ()

    def check(self, value: Any) -> tuple[object, list[Problem]]:
        """Return value in the Python type of the field's kind, and what is wrong with it."""
        match self.kind, value:
            case ("bool", bool()):
                return value, []
            case ("float" | "int" | "size", bool()):
                pass
            case ("float", int() | float()):
                return float(value), self._out_of_range(value)
            case ("int" | "size", int()):
                return value, self._out_of_range(value)
            case ("size", "auto"):
                return value, []
            case ("enum", str()):
                return value, self._no_choice(value)
            case ("enums", list()):
                return tuple(value), self._not_choices(value)
            case ("text", str()):
                return value, [] if value else [Problem("must not be empty", value)]
            case ("endpoint", str()):
                fits = _has_port(_ENDPOINT, value)
                return value, [] if fits else [Problem("must be an http or https URL with a host", value)]
            case ("listen", str()):
                fits = value == "" or _has_port(_LISTEN, value)
                reason = f"must be host:port with a port from 0 to {_MAX_PORT}, or empty"
                return value, [] if fits else [Problem(reason, value)]
            case ("publisher", str()):
                fits = value in ("auto", "none") or _has_port(_PUBLISHER, value)
                reason = 'must be tcp://host:port, ipc:///path, "auto" or "none"'
                return value, [] if fits else [Problem(reason, value)]
            case ("paths", list()):
                return tuple(value), _bad_paths(value)
            case ("tokens", list()):
                reason = f"must be a token id from 0 to {_MAX_U32}"
                return tuple(value), _bad_elements(value, _is_token_id, reason)
            case ("uids", list()):
                reason = f"must be a user id from 0 to {_MAX_U32 - 1}"
                return tuple(value), _bad_elements(value, _is_user_id, reason)
            case ("texts", list()):
                reason = "must be a text that is not empty"
                return tuple(value), _bad_elements(value, _is_marker_text, reason)
        return None, [Problem(f"must be {_KIND_NAMES[self.kind]}", value)]

    def _out_of_range(self, value: float) -> list[Problem]:
        above = value > self.min if self.min_open else value >= self.min
        below = value < self.max if self.max_open else value <= self.max
        if above and below and math.isfinite(value):
            return []
        finite = "" if math.isfinite(value) else "a finite number "
        return [Problem(f"must be {finite}{self._range()}".rstrip(), value)]

    def _range(self) -> str:
        bounds = []
        if self.min > -math.inf:
            bounds.append(f"{'>' if self.min_open else '≥'} {_number(self.min)}")
        if self.max < math.inf:
            bounds.append(f"{'<' if self.max_open else '≤'} {_number(self.max)}")
        return " and ".join(bounds)

    def _no_choice(self, value: str) -> list[Problem]:
        for choice in self.choices:
            if choice["name"] == value:
                return [Problem(choice["refused"], value)] if "refused" in choice else []
        names = [choice["name"] for choice in self.choices if "refused" not in choice]
        return [Problem(f"must be one of {', '.join(map(quoted, names))}", value, nearest(value, names))]

    def _not_choices(self, elements: list[object]) -> list[Problem]:
        if not elements:
            return [Problem("must not be empty", elements)]
        problems, seen = [], set()
        for i, element in enumerate(elements):
            name = element if isinstance(element, str) else ""
            bad = self._no_choice(name)
            if not bad and name in seen:
                bad = [Problem("must not stand there twice", element)]
            seen.add(name)
            problems += [replace(problem, given=element, suffix=f"[{i}]") for problem in bad]
        return problems


def _number(bound: float) -> str:
    return str(int(bound)) if bound == int(bound) else repr(bound)


def _has_port(form: re.Pattern[str], address: str) -> bool:
    match = form.fullmatch(address)
    return match is not None and int(match["port"] or 0) <= _MAX_PORT


def _bad_elements(
    elements: Iterable[object], is_good: Callable[[object], bool], reason: str
) -> list[Problem]:
    return [
        Problem(reason, element, suffix=f"[{i}]")
        for i, element in enumerate(elements)
        if not is_good(element)
    ]


def _bad_paths(elements: list[object]) -> list[Problem]:
    problems, seen = [], set()
    for i, element in enumerate(elements):
        reason = ""
        if not isinstance(element, str) or not _PATH.fullmatch(element):
            reason = "must be the path of one endpoint, such as /tokenize"
        elif element in seen:
            reason = "must not stand there twice"
        else:
            seen.add(element)
        if reason:
            problems.append(Problem(reason, element, suffix=f"[{i}]"))
    return problems


def _is_token_id(element: object) -> bool:
    return isinstance(element, int) and not isinstance(element, bool) and 0 <= element <= _MAX_U32


def _is_user_id(element: object) -> bool:
    return _is_token_id(element) and element != _MAX_U32


def _is_marker_text(element: object) -> bool:
    return isinstance(element, str) and element != ""


@dataclass(frozen=True, slots=True)
class Section:
    """One table of the file; where named, one table per name: [model.qwen3]; where
    listed, any number of tables in a table of another section: [[gateway.backend]]."""

    name: str
    named: bool
    listed: bool
    fields: dict[str, Field]

    def has_subtable(self, name: str) -> bool:
        return any(field.startswith(name + ".") for field in self.fields)

    def env_name(self, field: str) -> str:
        """The variable that overrides a field of a section that is not named."""
        return ENV_PREFIX + f"{self.name}_{field.replace('.', '_')}".upper()


@cache
def schema() -> dict[str, Section]:
    """Return the sections of meridian.toml, in the order of the example file."""
    text = resources.files("meridian").joinpath("schema.json").read_text(encoding="utf-8")
    sections = json.loads(text)["sections"]
    return {
        s["name"]: Section(**{**s, "fields": {f["name"]: Field(**f) for f in s["fields"]}}) for s in sections
    }
