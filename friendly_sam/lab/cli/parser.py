"""The argument parser of the commands: mistakes are raised as one line."""

from __future__ import annotations

import argparse
from typing import NoReturn

from friendly_sam.lab.errors import LabError, with_near_options


class Parser(argparse.ArgumentParser):
    """An argument parser that raises its errors."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and exiting."""
        message = with_near_options(message, self._option_string_actions)
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
