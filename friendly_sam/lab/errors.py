"""The errors whose message is meant for the person at the keyboard."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return " (did you mean ...?)" with the name that is nearest, or nothing if none is near."""
    near = difflib.get_close_matches(name, list(names), n=1)
    return f" (did you mean {near[0]}?)" if near else ""


class LabError(Exception):
    """A mistake the user can mend; the command line prints it as one line, exit code 2."""


class RunError(LabError):
    """A run that started well and failed (NaN, full disk, ...): one line, exit code 1."""


def with_near_options(message: str, options: Iterable[str]) -> str:
    """Add to argparse's message about arguments it does not know the options they come near to."""
    known, said = list(options), []
    for word in message.split():
        option, equals, value = word.partition("=")
        hint = did_you_mean(option, known) if option.startswith("--") else ""
        said.append(f"{option}{hint}{equals}{value}")
    return " ".join(said) if message.startswith("unrecognized arguments") else message
