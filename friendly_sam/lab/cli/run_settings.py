"""The settings of a run from a command line: a preset, a file, and what overrides them."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from friendly_sam.lab.cli.parser import Parser
from friendly_sam.lab.config.presets import RECIPES, preset
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.config.yaml import config_parser, from_arguments, from_yaml
from friendly_sam.lab.errors import LabError


def settings(
    arguments: Sequence[str], *, own: Sequence[str] = (), resume: bool = False, **help_texts: str
) -> RunConfig:
    """Read the settings of a run from a command line: a preset, a file, and what overrides them.

    Args:
        arguments: what follows the command's own options.
        own: those options, to be suggested for one that is misspelt.
        resume: whether the settings may be those of the run in `--output`.
        help_texts: `prog`, `usage`, `description` and `epilog` of the help.
    """
    first = Parser(prog=help_texts.get("prog"), add_help=False, allow_abbrev=False)
    first.add_argument("--preset")
    options, rest = first.parse_known_args(list(arguments))
    start = _start(options.preset, resume, rest)
    parser = config_parser(start, formatter_class=_formatter(), **help_texts)
    return from_arguments(rest, parser, ("--preset", *own))


def _start(name: str | None, resume: bool, rest: Sequence[str]) -> RunConfig | None:
    """Return the settings to start from; `None` for the defaults."""
    if name is not None:
        return preset(name)
    named_config = any(argument.split("=")[0] == "--config" for argument in rest)
    first = Parser(prog="fsam train", add_help=False, allow_abbrev=False)
    first.add_argument("--output", type=Path)
    first.add_argument("--model.name", dest="network")
    first.add_argument("--model.cache", dest="cache")
    found = first.parse_known_args(list(rest))[0]
    folder = found.output
    if resume and not named_config and folder is not None:
        if not (folder / "config.yaml").is_file():
            raise LabError(f"--resume: there is no run in {folder} (no config.yaml)")
        return _without_cache(from_yaml(folder / "config.yaml"), found.cache)
    if found.network in RECIPES and not named_config:
        return preset(RECIPES[found.network])
    return None


def _without_cache(config: RunConfig, named: str | None) -> RunConfig:
    """Leave the cache out: a run's folder, maybe of others, does not say where else to write.

    It changes speed, not results.
    """
    cache = config.model.cache
    if cache is not None and named is None:
        print(f"the cache of this run is not used unless it is named: --model.cache {cache}")
    return dataclasses.replace(config, model=dataclasses.replace(config.model, cache=None))


def _formatter() -> type[argparse.HelpFormatter]:
    from jsonargparse import DefaultHelpFormatter

    class Formatter(argparse.RawDescriptionHelpFormatter, DefaultHelpFormatter):
        """Help that keeps the line breaks of description and examples."""

    return Formatter
