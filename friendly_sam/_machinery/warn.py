"""Warnings that point to the code that uses the library."""

from __future__ import annotations

import contextlib
import sys
import warnings
from pathlib import Path
from types import FrameType

import torch

_INNER = (
    str(Path(__file__).parents[1]),
    str(Path(torch.__file__).parent),
    contextlib.__file__,
)


def warn(message: str, known: set[str] | None = None) -> None:
    """Warn at the nearest line that is neither of this library nor of what calls it for others.

    With `known`, a message that is in it is not repeated.
    """
    if known is not None:
        if message in known:
            return
        known.add(message)
    frame: FrameType | None = sys._getframe()
    level = 1
    while frame is not None and frame.f_code.co_filename.startswith(_INNER):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, stacklevel=level)
