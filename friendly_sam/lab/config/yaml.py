"""Configs in and out: dictionaries, YAML files and command lines, all through jsonargparse.

There is one typed reader, so a key that is refused on the command line is refused in a
file too, and a `config.yaml` that a run left behind starts the same run again.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import yaml

from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.config.settings_file import (
    LARGEST,
    checked_settings,
    parse_settings,
    read_settings,
)
from friendly_sam.lab.errors import LabError, with_near_options
from friendly_sam.lab.reading import read_bytes

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

MISTAKES = (argparse.ArgumentError, ValueError, TypeError, ArithmeticError, RecursionError)
"""What the parser raises for a bad value; an integer too large for a float overflows."""
_SECTIONS = ("data", "model", "method", "base", "schedule", "engine")


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
    return _from_settings(checked_settings(values, source), source)


def from_yaml(path: Path) -> RunConfig:
    """Read a YAML file (safely: it can hold data, never code)."""
    return _parsed(read_bytes(path, limit=LARGEST), str(path))


@functools.lru_cache(maxsize=64)
def _parsed(content: bytes, source: str) -> RunConfig:
    """Parse the same bytes once: `--resume` looks at a run's settings three times."""
    return _from_settings(parse_settings(content, source), source)


def _from_settings(settings: dict[str, Any], source: str) -> RunConfig:
    parser = _plain_parser()
    try:
        return _instantiate(parser, parser.parse_object(settings))
    except MISTAKES as error:
        raise LabError(f"{source}: {one_line(error)}") from error


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
    except MISTAKES as error:
        if isinstance(error, ArithmeticError) or "4300 digits" in str(error):
            raise LabError(_huge(arguments)) from error
        options = [*parser._option_string_actions, *own]
        raise LabError(with_near_options(one_line(error), options)) from error


def _huge(arguments: Sequence[str]) -> str:
    """Name the option whose number is too large for the parser itself."""
    words = [word for argument in arguments for word in argument.partition("=")[::2] if word]
    for name, value in itertools.pairwise(words):
        digits = re.search(r"\d{40,}", value)
        if digits:
            return f"{name} must have fewer digits, got an integer of {len(digits[0])} digits"
    return "a number is too large"


def config_parser(start: RunConfig | None = None, **options: Any) -> ArgumentParser:
    """Make the parser of run settings; `start` gives the values of what is not named."""
    import jsonargparse

    jsonargparse.set_parsing_settings(docstring_parse_attribute_docstrings=True)
    parser = jsonargparse.ArgumentParser(exit_on_error=False, allow_abbrev=False, **options)
    parser.add_argument("--config", action=_config_file(), help="a YAML file of settings")
    parser.add_class_arguments(RunConfig)
    for section in _SECTIONS:  # `--data x` would read a file, or import a class of that name
        parser._option_string_actions.pop(f"--{section}").help = argparse.SUPPRESS
    # Its own placeholder starts with a backspace, to stand closer on a terminal.
    parser._option_string_actions["--print_config"].metavar = "[=flags]"
    if start is not None:
        parser.set_defaults(flatten(start))
    return parser


def _config_file() -> Any:
    """Return the action of `--config`, which reads a file by our own, bounded reader."""
    import jsonargparse

    class ConfigFile(jsonargparse.ActionConfigFile):  # type: ignore[misc,name-defined]
        @staticmethod
        def apply_config(parser: Any, cfg: Any, dest: str, value: Any) -> None:
            """Put the settings of a file into the namespace of the parser."""
            settings = read_settings(Path(value))
            found = parser.parse_object(settings, defaults=False)
            for key in (key for key in found.keys() if key != dest):  # noqa: SIM118
                cfg[key] = found[key]

    return ConfigFile


@functools.cache
def _plain_parser() -> ArgumentParser:
    return config_parser()


def _instantiate(parser: ArgumentParser, parsed: Any) -> RunConfig:
    _refuse_null(RunConfig, parsed)
    values = parser.instantiate(parsed)
    return RunConfig(**{f.name: values[f.name] for f in dataclasses.fields(RunConfig)})


def _refuse_null(kind: Any, parsed: Any, prefix: str = "") -> None:
    """Refuse null where a value is needed; the parser takes it for a value not given."""
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        name, value = f"{prefix}{field.name}", parsed[field.name]
        if value is None and type(None) not in get_args(hints[field.name]):
            raise ValueError(f"{name} must not be null (default: {field.default})")
        if dataclasses.is_dataclass(hints[field.name]):
            _refuse_null(hints[field.name], value, f"{name}.")


def one_line(error: BaseException | str) -> str:
    """Fold a message of several lines into one, without the parser's own jargon."""
    text = re.sub(r"\s+", " ", str(error)).strip()
    text = re.sub(r'Parser key "([^"]+)":', r"\1:", text)
    text = re.sub(r"typing\.Literal\[([^\]]*)\]", r"one of \1", text)
    text = re.sub(r"<class '(\w+)'>", r"\1", text)
    text = re.sub(
        r"Does not validate against any of the Union subtypes Subtypes: \[(.*?)\] Errors: .*"
        r"Given value: (.*)$",
        lambda found: f"must be {_in_words(found[1])}, got {found[2]}",
        text,
    )
    text = re.sub(
        r"Expected an? ([^.]+)\. Got value: (.*)$",
        lambda found: f"must be {_in_words(found[1])}, got {found[2]}",
        text,
    )
    text = re.sub(r"^(\S+): must be", r"\1 must be", text)
    return re.sub(r"\d{40,}", lambda found: f"an integer of {len(found[0])} digits", text)


_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "NoneType": "null",
    "tuple": "a list",
    "tuple[int, ...]": "a list of whole numbers",
    "tuple[float, ...]": "a list of numbers",
    "tuple with 2 elements": "two numbers",
}


def _in_words(types: str) -> str:
    """Return the names of Python's types as a reader knows them."""
    parts = re.split(r", (?![^\[]*\])", types)
    return " or ".join(_WORDS.get(part, part) for part in parts)
