"""Checks a configuration layer by layer: defaults, the file, the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from meridian import _toml
from meridian._config_schema import ENV_PREFIX, Field, Section, schema
from meridian.fault import Fault, display, nearest, quoted_key

Origin = Literal["default", "file", "environment"]

# What Go's strings.TrimSpace takes for space; str.strip would take more.
_SPACE = "\t\v\f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a" + (
    "\u2028\u2029\u202f\u205f\u3000"
)


@dataclass(frozen=True, slots=True)
class Setting:
    """A value that passed its own check, and the layer it came from."""

    value: object
    origin: Origin


class Checker:
    """Gathers settings and faults from one layer after another."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.settings: dict[str, Setting] = {}
        """By dotted path."""
        self.models: dict[str, str] = {}
        """Dotted paths of [model.*], by name."""
        self.lists: dict[str, list[str]] = {}
        """Paths of the tables of listed sections, by section."""
        self.faults: list[Fault] = []
        self.broken: set[str] = set()
        """Paths that had a fault; rules that need them stay silent."""
        for section in schema().values():
            if not (section.named or section.listed):
                self._set_defaults(section, section.name)

    def value(self, path: str) -> Any:
        """Return the setting of path, or None where there is none."""
        setting = self.settings.get(path)
        return setting.value if setting else None

    def sound(self, *paths: str) -> bool:
        return self.broken.isdisjoint(paths)

    def fault(self, fault: Fault) -> None:
        self.faults.append(fault)
        self.broken.add(fault.path)

    def fault_at(self, path: str, reason: str, given: str = "") -> None:
        """Report a rule broken at path, where path was set or should stand."""
        source = self.source
        setting = self.settings.get(path)
        if setting and setting.origin == "environment":
            section, _, field = path.partition(".")
            source = f"environment {schema()[section].env_name(field)}"
        self.fault(Fault(path, source, reason, given))

    def file(self, document: dict[str, Any]) -> None:
        """Check every value of a document against the schema."""
        for name, value in document.items():
            path = quoted_key(name)
            section = schema().get(name)
            if section is None or section.listed:
                names = [section.name for section in schema().values() if not section.listed]
                self.fault(Fault(path, self.source, "unknown section", nearest=nearest(name, names)))
            elif not self._is_table(path, value):
                pass
            elif section.named:
                self._named_tables(section, value)
            else:
                self._fields(section, path, "", value)

    def _named_tables(self, section: Section, tables: dict[str, Any]) -> None:
        for name, fields in tables.items():
            path = f"{section.name}.{quoted_key(name)}"
            if self._is_table(path, fields):
                self.models[name] = path
                self._set_defaults(section, path)
                self._fields(section, path, "", fields)

    def _listed_tables(self, section: Section, tables: object) -> None:
        if not isinstance(tables, list):
            reason = f"must be a list of tables: [[{section.name}]]"
            self.fault(Fault(section.name, self.source, reason, display(tables)))
            return
        for i, fields in enumerate(tables):
            path = f"{section.name}[{i}]"
            if self._is_table(path, fields):
                self.lists.setdefault(section.name, []).append(path)
                self._set_defaults(section, path)
                self._fields(section, path, "", fields)

    def _fields(self, section: Section, path: str, prefix: str, table: dict[str, Any]) -> None:
        """Check the keys of one table. prefix is the path of a table within the
        section, such as "channel.", or empty."""
        for key, value in table.items():
            name = prefix + key
            key_path = f"{path}.{prefix}{quoted_key(key)}"
            # A quoted key may hold a dot; it is no path into a table.
            field = section.fields.get(name) if "." not in key else None
            listed = schema().get(key_path)
            if field:
                self._set(field, key_path, value, "file", self.source)
            elif listed and listed.listed:
                self._listed_tables(listed, value)
            elif section.has_subtable(name):
                if self._is_table(key_path, value):
                    self._fields(section, path, name + ".", value)
            else:
                meant = nearest(name, section.fields).removeprefix(prefix)
                self.fault(Fault(key_path, self.source, "unknown field", nearest=meant))

    def environment(self, environ: Mapping[str, str]) -> None:
        """Apply MERIDIAN_SECTION_FIELD variables.

        One that starts with a section's name but names no field is a fault, and so
        is one that names a field behind a mistyped section, because an override
        that silently does nothing is worse than none; other MERIDIAN_ variables
        belong to other programs.
        """
        for variable in sorted(name for name in environ if name.startswith(ENV_PREFIX)):
            source = f"environment {variable}"
            section = _section_of(variable)
            if section is None:
                path, meant = _mistyped_section(variable)
                if meant:
                    self.fault(Fault(path, source, "unknown section", nearest=meant))
                continue
            fields = {section.env_name(name): field for name, field in section.fields.items()}
            path = f"{section.name}.{quoted_key(variable.removeprefix(section.env_name('')).lower())}"
            field = fields.get(variable)
            if section.named:
                reason = f"[{section.name}.<name>] has no variables; set it in the file"
                self.fault(Fault(path, source, reason))
            elif field:
                value = _from_variable(field, environ[variable])
                self._set(field, f"{section.name}.{field.name}", value, "environment", source)
            else:
                meant = nearest(variable, sorted(fields))
                self.fault(Fault(path, source, "unknown field", nearest=meant))

    def _set_defaults(self, section: Section, path: str) -> None:
        for field in section.fields.values():
            if field.default is not None:
                self.settings[f"{path}.{field.name}"] = Setting(field.check(field.default)[0], "default")

    def _is_table(self, path: str, value: object) -> bool:
        if isinstance(value, dict):
            return True
        self.fault(Fault(path, self.source, "must be a table", display(value)))
        return False

    def _set(self, field: Field, path: str, value: object, origin: Origin, source: str) -> None:
        """Check one value and, if it is good, make it the field's setting."""
        normal, problems = field.check(value)
        for problem in problems:
            where = path + problem.suffix
            self.fault(Fault(where, source, problem.reason, display(problem.given), problem.nearest))
            self.broken.add(path)
        if not problems:
            self.settings[path] = Setting(normal, origin)


def _section_of(variable: str) -> Section | None:
    """Tell whose variable this is. A listed section has none: they would be those
    of the section that it is in."""
    for section in schema().values():
        if variable.startswith(section.env_name("")) and not section.listed:
            return section
    return None


def _mistyped_section(variable: str) -> tuple[str, str]:
    """Return the path, and the variable that was meant, or "", for one that ends in
    the name of a field of a section with a similar name."""
    rest = variable.removeprefix(ENV_PREFIX)
    for section in schema().values():
        for field in section.fields:
            typed = rest.removesuffix(f"_{field.upper()}")
            if typed != rest and not (section.named or section.listed) and nearest(typed, [section.name]):
                return f"{quoted_key(typed.lower())}.{field}", section.env_name(field)
    return "", ""


def _from_variable(field: Field, text: str) -> object:
    """Read a variable's text as the field's kind; choices stand there with commas
    between. Text that is not what the kind needs stays text, and the check then
    says so."""
    if field.kind in ("enums", "paths"):
        return text.split(",") if text or field.kind == "enums" else []
    if field.kind == "uids" and not any(c in text for c in "\r\n#"):
        try:
            return _toml.read(f"value = [{text}]".encode())["value"]
        except ValueError:
            return text
    if field.kind not in ("bool", "int", "float", "size") or "\n" in text or "\r" in text:
        return text
    try:
        return _toml.read(f"value = {text.strip(_SPACE)}".encode())["value"]
    except ValueError:
        return text
