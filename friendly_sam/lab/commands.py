"""`fsam train` and `fsam list`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from friendly_sam.lab.config import RunConfig
from friendly_sam.lab.methods import METHODS, resolve
from friendly_sam.lab.options import Parser
from friendly_sam.lab.parsing import config_parser, from_arguments, from_yaml
from friendly_sam.lab.presets import PRESETS, preset
from friendly_sam.lab.records import is_run

_USAGE = "fsam train [--preset NAME] [--config FILE] [--resume] [--SETTING VALUE ...]"

_DESCRIPTION = """\
Train a network and keep the records in a folder.

--preset NAME starts from a preset of `fsam list presets`, --config FILE from a YAML file;
settings named below override both. --resume goes on with the run in --output, bit for bit;
without a preset or a file, the settings are those of that run.
"""

_EXAMPLE = """\
examples:
  fsam train --preset digits-mlp-fsam
  fsam train --preset cifar10-resnet18-fsam --data.root ~/cifar10 --seed 1 --output runs/first
  fsam train --resume --output runs/first
  torchrun --nproc-per-node 2 -m friendly_sam.lab train --preset cifar10-resnet18-fsam
"""


def train(arguments: Sequence[str]) -> int:
    """Train one run, or go on with one."""
    first = Parser(prog="fsam train", add_help=False, allow_abbrev=False)
    first.add_argument("--resume", action="store_true")
    options, rest = first.parse_known_args(list(arguments))
    config = resolve(
        settings(
            rest,
            own=("--resume",),
            resume=options.resume,
            prog="fsam train",
            usage=_USAGE,
            description=_DESCRIPTION,
            epilog=_EXAMPLE,
        )
    )
    from friendly_sam.lab.engine import train as run
    from friendly_sam.lab.progress import RunProgress

    with RunProgress(config) as progress:
        folder = run(config, resume=options.resume, listener=progress)
    if os.environ.get("RANK", "0") == "0":
        print(f"finished: {folder}")
    return 0


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


def _start(name: str | None, resume: bool, rest: Sequence[str]) -> RunConfig:
    """Give the settings to start from."""
    if name is not None:
        return preset(name)
    named_config = any(argument.split("=")[0] == "--config" for argument in rest)
    first = Parser(prog="fsam train", add_help=False, allow_abbrev=False)
    first.add_argument("--output", type=Path)
    folder = first.parse_known_args(list(rest))[0].output
    if resume and not named_config and folder is not None and is_run(folder):
        return from_yaml(folder / "config.yaml")
    return RunConfig()


def _formatter() -> type[argparse.HelpFormatter]:
    from jsonargparse import DefaultHelpFormatter

    class Formatter(argparse.RawDescriptionHelpFormatter, DefaultHelpFormatter):
        """Help that keeps the line breaks of description and examples."""

    return Formatter


def list_all(kinds: Iterable[str]) -> int:
    """Print what there is, a line each."""
    for number, kind in enumerate(kinds):
        entries = _entries(kind)
        width = max(map(len, entries))
        print(("\n" if number else "") + kind)
        for name, description in entries.items():
            print(f"  {name:<{width}}  {description}")
    return 0


def _entries(kind: str) -> dict[str, str]:
    if kind == "methods":
        return {name: info.description for name, info in METHODS.items()}
    if kind == "presets":
        return PRESETS
    if kind == "data":
        from friendly_sam.lab.data import DATASETS

        return {name: info.description for name, info in DATASETS.items()}
    from friendly_sam.lab.models import MODELS

    others = {
        "hf:NAME": "an image classifier of Hugging Face transformers, by name or folder",
        "timm:NAME": "a network of timm, where it is installed",
    }
    return {name: info.description for name, info in MODELS.items()} | others
