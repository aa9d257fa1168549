"""A YAML file of settings, read as data: of a bounded size and depth, with known names only.

Nothing in it is followed: no alias (which could grow without end), no tag (which could make
objects), no path of another file and no name of a class.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from friendly_sam.lab.config.bounds import LARGEST_SEED, LONGEST_TEXT, shown
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.errors import LabError, did_you_mean, printable
from friendly_sam.lab.reading import read_bytes

LARGEST = 100_000
"""Bytes of a file of settings; one with every setting has 2,000."""
DEEPEST = 8
LONGEST_LIST = 10_000

REMOVED = {"engine.fused"}
"""Settings of run folders that 0.1 wrote; they changed speed only."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_settings(path: Path) -> dict[str, Any]:
    """Read a YAML file of settings; whatever is wrong with it is one line that names it."""
    return parse_settings(read_bytes(path, limit=LARGEST), str(path))


def parse_settings(content: bytes, source: str) -> dict[str, Any]:
    """Parse the bytes of such a file; `source` is what an error names."""
    try:
        text = content.decode("utf-8")
        _check_events(text)
        values = yaml.load(text, Loader=_LOADER)
    except LabError as error:
        raise LabError(f"{source}: {error}") from error
    except Exception as error:  # the constructors of YAML's types each raise their own
        raise LabError(f"{source} is not valid YAML{_place(error)}") from error
    if not isinstance(values, dict):
        raise LabError(f"{source} must hold settings as `key: value`, got {type(values).__name__}")
    return checked_settings(values, source)


def checked_settings(values: Mapping[Any, Any], source: str) -> dict[str, Any]:
    """Return settings as plain values under known names, without those of older versions."""
    fields = {field.name: field.type for field in dataclasses.fields(RunConfig)}
    found: dict[str, Any] = {}
    for name, value in values.items():
        _check_name(name, fields, "", source)
        section = RunConfig.__dataclass_fields__[name].default_factory
        if section is dataclasses.MISSING:
            found[name] = _plain(value, name, source)
            continue
        if not isinstance(value, dict):
            raise LabError(
                f"{source}: {name} must hold settings as `key: value`, got {_kind(value)}"
            )
        inner = {field.name for field in dataclasses.fields(section)}  # type: ignore[arg-type]
        found[name] = {}
        for key, item in value.items():
            if f"{name}.{key}" not in REMOVED:
                _check_name(key, inner, f"{name}.", source)
                found[name][key] = _plain(item, f"{name}.{key}", source)
    return found


def _check_name(name: Any, known: Any, prefix: str, source: str) -> None:
    if not isinstance(name, str) or name not in known:
        hint = did_you_mean(name, known) if isinstance(name, str) else ""
        raise LabError(f"{source}: there is no setting {prefix}{shown(name)}{hint}")


def _plain(value: Any, name: str, source: str) -> Any:
    """Return a number, a text, a truth value, null, or a list of those."""
    if isinstance(value, list):
        if len(value) > LONGEST_LIST:
            raise LabError(f"{source}: {name} must hold at most {LONGEST_LIST:,} values")
        if not any(isinstance(item, list) for item in value):
            return [_plain(item, name, source) for item in value]
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        raise LabError(f"{source}: {name} must have at most {LONGEST_TEXT} characters")
    if isinstance(value, int) and abs(value) > LARGEST_SEED:
        raise LabError(f"{source}: {name} must be at most {LARGEST_SEED}, got {shown(value)}")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise LabError(f"{source}: {name} must be a plain value, got {_kind(value)}")


def _kind(value: Any) -> str:
    return "null" if value is None else f"a {type(value).__name__}"


def _check_events(text: str) -> None:
    """Refuse aliases and depth before anything is built; the events come one by one."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent):
            raise LabError(f"aliases are not read (*{printable(str(event.anchor))})")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEEPEST:
            raise LabError(f"nested more than {DEEPEST} levels deep")


def _place(error: Exception) -> str:
    """Return where the mistake is, without the text around it: it may be no settings at all."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None)
    where = "" if mark is None else f", line {mark.line + 1}, column {mark.column + 1}"
    return where if problem is None else f"{where}: {printable(str(problem))}"
