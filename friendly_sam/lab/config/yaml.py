"""Configs in and out: dictionaries, YAML files and command lines, all through jsonargparse.

There is one typed reader, so a key that is refused on the command line is refused in a
file too, and a `config.yaml` that a run left behind starts the same run again.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import yaml

from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.errors import LabError, with_near_options

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser


REMOVED = {"engine.fused"}
"""Settings of run folders that 0.1 wrote; they changed speed only."""


def to_dict(config: RunConfig) -> dict[str, Any]:
    """Return the config as plain dictionaries, lists and scalars."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value

    result: dict[str, Any] = plain(dataclasses.asdict(config))
    return result


def to_yaml(config: RunConfig) -> str:
    """Return the config as YAML, fields in the order of the classes."""
    return yaml.safe_dump(to_dict(config), sort_keys=False, allow_unicode=True)


def flatten(config: RunConfig) -> dict[str, Any]:
    """Return every setting under its dotted name, as the command line spells it."""
    flat: dict[str, Any] = {}
    for key, value in to_dict(config).items():
        if isinstance(value, dict):
            flat.update({f"{key}.{name}": item for name, item in value.items()})
        else:
            flat[key] = value
    return flat


def from_dict(values: Mapping[str, Any], source: str = "the config") -> RunConfig:
    """Build a config from dictionaries; unknown keys and wrong types are refused."""
    parser = _plain_parser()
    try:
        return _instantiate(parser, parser.parse_object(_without_removed(values)))
    except (argparse.ArgumentError, ValueError, TypeError) as error:
        raise LabError(f"{source}: {one_line(error)}") from error


def _without_removed(values: Mapping[str, Any]) -> dict[str, Any]:
    """Drop settings that older versions wrote and that no longer exist."""
    return {
        key: {name: item for name, item in value.items() if f"{key}.{name}" not in REMOVED}
        if isinstance(value, dict)
        else value
        for key, value in values.items()
    }


def from_yaml(path: Path) -> RunConfig:
    """Read a YAML file (safely: it can hold data, never code)."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LabError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise LabError(f"{path} is not valid YAML: {one_line(error)}") from error
    if not isinstance(values, dict):
        raise LabError(f"{path} must hold settings as `key: value`, got {type(values).__name__}")
    return from_dict(values, str(path))


def from_arguments(
    arguments: Sequence[str], parser: ArgumentParser, own: Sequence[str] = ()
) -> RunConfig:
    """Build a config from a command line: `--config FILE` and dotted overrides.

    Args:
        arguments: the command line, without the options of the command itself.
        parser: what `config_parser` gave.
        own: those options, to be suggested for one that is misspelt.
    """
    try:
        return _instantiate(parser, parser.parse_args(list(arguments)))
    except (argparse.ArgumentError, ValueError, TypeError) as error:
        options = [*parser._option_string_actions, *own]
        raise LabError(with_near_options(one_line(error), options)) from error


def config_parser(start: RunConfig | None = None, **options: Any) -> ArgumentParser:
    """Make the parser of run settings; `start` gives the values of what is not named."""
    import jsonargparse

    jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
    parser = jsonargparse.ArgumentParser(exit_on_error=False, allow_abbrev=False, **options)
    parser.add_argument("--config", action="config", help="a YAML file of settings")
    parser.add_class_arguments(RunConfig)
    if start is not None:
        parser.set_defaults(flatten(start))
    return parser


@functools.cache
def _plain_parser() -> ArgumentParser:
    return config_parser()


def _instantiate(parser: ArgumentParser, parsed: Any) -> RunConfig:
    values = parser.instantiate(parsed)
    config = RunConfig(**{f.name: values[f.name] for f in dataclasses.fields(RunConfig)})
    _refuse_null(config)
    return config


def _refuse_null(config: Any, prefix: str = "") -> None:
    """Refuse null where a value is needed; the parser takes it for a value not given."""
    hints = get_type_hints(type(config))
    for field in dataclasses.fields(config):
        name, value = f"{prefix}{field.name}", getattr(config, field.name)
        if value is None and type(None) not in get_args(hints[field.name]):
            raise ValueError(f"{name} must not be null (default: {field.default})")
        if dataclasses.is_dataclass(value):
            _refuse_null(value, f"{name}.")


def one_line(error: BaseException | str) -> str:
    """Fold a message of several lines into one, without the parser's own jargon."""
    text = re.sub(r"\s+", " ", str(error)).strip()
    text = re.sub(r'Parser key "([^"]+)":', r"\1:", text)
    text = re.sub(r"typing\.Literal\[([^\]]*)\]", r"one of \1", text)
    text = re.sub(r"<class '(\w+)'>", r"\1", text)
    return re.sub(r"Expected an? one of", "expected one of", text)
