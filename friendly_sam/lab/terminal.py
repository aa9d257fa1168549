"""What reaches the terminal: printable text, and one line for a warning.

Names and messages of run folders, data and configs are printed; an escape sequence in them must
not move a cursor or change a title, whoever prints it.
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any, TextIO, cast

from friendly_sam.lab.errors import printable


class _Printable:
    """A stream that spells control characters out."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextlib.contextmanager
def printable_output() -> Iterator[None]:
    """Let everything that is printed meanwhile pass through `printable`."""
    show = warnings.showwarning

    def one_line(message: Warning | str, *_: Any, **__: Any) -> None:
        print(f"fsam: warning: {' '.join(str(message).split())}", file=sys.stderr)

    warnings.showwarning = one_line
    try:
        with (
            contextlib.redirect_stdout(cast(TextIO, _Printable(sys.stdout))),
            contextlib.redirect_stderr(cast(TextIO, _Printable(sys.stderr))),
        ):
            yield
    finally:
        warnings.showwarning = show


def untouched(stream: TextIO) -> TextIO:
    """Return the stream beneath, for who writes escape sequences on purpose (a progress bar)."""
    return stream.stream if isinstance(stream, _Printable) else stream
