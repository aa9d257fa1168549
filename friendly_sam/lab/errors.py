"""The errors whose message is meant for the person at the keyboard."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable

SYNONYMS = {"learning_rate": "lr", "wd": "weight_decay"}
"""What other tools call a setting."""
NEAR = 0.65
"""How alike two names must be, from 0 to 1."""


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return " (did you mean ...?)" with the name that is nearest, or nothing if none is near.

    Example:
        >>> known = ["--data.name", "--data.label_noise", "--method.name", "--method.rho"]
        >>> [did_you_mean(name, known) for name in ("--rho", "--method", "--noise", "--colour")]
        [' (did you mean --method.rho?)', ' (did you mean --method.name?)', \
' (did you mean --data.label_noise?)', '']
    """
    known, bare = list(names), name.lstrip("-").replace("-", "_")
    last = {each: each.rpartition(".")[2] for each in known if "." in each}
    # `--rho` means `--method.rho`, however far apart the two are as strings.
    near = [each for each, own in last.items() if own == SYNONYMS.get(bare, bare)]
    near += [each for each in known if each.lstrip("-") == f"{bare}.name"]
    near += [each for each, own in last.items() if bare in own.split("_")]
    near = near or difflib.get_close_matches(name.lower(), known, n=1, cutoff=NEAR)
    if not near:
        alike = difflib.get_close_matches(bare, last.values(), n=1, cutoff=NEAR)
        near = [each for each, own in last.items() if own in alike]
    return f" (did you mean {near[0]}?)" if near else ""


def printable(text: str) -> str:
    r"""Return a text without control characters: what moves a terminal's cursor is spelt out.

    Names and messages of run folders, data and configs reach the terminal; an escape sequence
    in them must not (nor half a surrogate pair, which no terminal takes).

    Example:
        >>> printable("a" + chr(27) + "[2Jb")
        'a\\x1b[2Jb'
    """
    return "".join(c if c.isprintable() or c in "\n\t" or _is_space(c) else _spelt(c) for c in text)


def _is_space(character: str) -> bool:
    return unicodedata.category(character) == "Zs"


def _spelt(character: str) -> str:
    return character.encode("unicode_escape").decode()


class LabError(Exception):
    """A mistake the user can mend; the command line prints it as one line, exit code 2."""


class RunError(LabError):
    """A run that started well and failed (NaN, full disk, ...): one line, exit code 1."""


def with_near_options(message: str, options: Iterable[str]) -> str:
    """Add to argparse's message about arguments it does not know the options they come near to."""
    if not message.startswith("unrecognized arguments"):
        return message
    known, said, hint = list(options), [], ""
    for word in message.split():
        if word.startswith("--"):  # the hint comes after the values of the option before
            said.append(hint)
            hint = did_you_mean(word.partition("=")[0], known)
        said.append(f" {word}")
    return "".join([*said, hint]).strip()
