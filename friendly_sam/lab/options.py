"""Command lines: mistakes are raised, in one line, with the option that was probably meant."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import NoReturn

from friendly_sam.lab.errors import LabError, did_you_mean


class Parser(argparse.ArgumentParser):
    """An argument parser that raises its errors."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and exiting."""
        message = with_near_options(message, self._option_string_actions)
        raise LabError(f"{message} (see {self.prog} --help)")


def with_near_options(message: str, options: Iterable[str]) -> str:
    """Add to argparse's message about arguments it does not know the options they come near to."""
    known, said = list(options), []
    for word in message.split():
        option, equals, value = word.partition("=")
        hint = did_you_mean(option, known) if option.startswith("--") else ""
        said.append(f"{option}{hint}{equals}{value}")
    return " ".join(said) if message.startswith("unrecognized arguments") else message
