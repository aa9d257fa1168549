"""Memory that lasts is never made in inference mode, in which no later step could change it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def ordinary_mode(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Leave inference mode, where it is on, for the call of a function."""

    @functools.wraps(function)
    def wrapper(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if not torch.is_inference_mode_enabled():
            return function(*args, **kwargs)
        with torch.inference_mode(False):
            return function(*args, **kwargs)

    return wrapper
