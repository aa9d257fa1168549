"""How this package is installed, said in one place: change it here when it is published."""

from __future__ import annotations

COMMAND = 'pip install ".[{extra}]"'
"""`docs/hooks.py` writes it into the pages; a test compares the text of the guides."""
WHERE = " in a clone of friendly-sam"
"""It is on no index yet."""


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra, and where to give it."""
    return COMMAND.format(extra=extra) + WHERE
