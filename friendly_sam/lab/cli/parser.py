"""The argument parser of the commands: mistakes are raised as one line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import NoReturn

from friendly_sam.lab.config.bounds import LARGEST, number, positive, shown
from friendly_sam.lab.errors import LabError, with_near_options

MOST_WORKERS = 1024


class Parser(argparse.ArgumentParser):
    """An argument parser that raises its errors."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and exiting."""
        message = with_near_options(message, self._option_string_actions)
        message = re.sub(r"^argument (\S+): +must", r"\1 must", message)
        raise LabError(f"{message} (see {self.prog} --help)")


def command_parser(name: str, description: str, examples: str) -> Parser:
    """Return the parser of `fsam NAME`; line breaks of description and examples are kept."""
    several = examples.strip().count("\n") > 0
    return Parser(
        prog=f"fsam {name}",
        description=description,
        epilog=f"example{'s' if several else ''}:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def whole(least: int, most: float = LARGEST) -> Callable[[str], int]:
    """Return the type of an option that takes a whole number between bounds."""

    def convert(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"must be a whole number, got {shown(text)}") from None
        _check(number, value, least, most)
        return value

    return convert


def above_zero(text: str) -> float:
    """Convert the value of an option that takes a number greater than 0."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be a number, got {shown(text)}") from None
    _check(positive, value)
    return value


def _check(check: Callable[..., None], *values: float) -> None:
    try:
        check("", *values)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).strip()) from None
