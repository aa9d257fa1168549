"""Layers that behave differently in training: how they behave while a loss is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, get_args

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from friendly_sam.batchnorm import frozen_statistics

Mode = Literal["evaluation", "batch", "as is"]
"""`evaluation`: the whole model in evaluation mode, BatchNorm with its running statistics.
`batch`: the same, but BatchNorm with the statistics of each (fixed) batch, which it does not
record. `as is`: every layer in the mode it stands in, without recording statistics."""


def check_mode(mode: str) -> None:
    """Refuse a mode that is none."""
    if mode not in get_args(Mode):
        names = ", ".join(repr(name) for name in get_args(Mode))
        raise ValueError(f"mode must be one of {names}, not {mode!r}")


@contextmanager
def in_mode(model: nn.Module, mode: Mode) -> Iterator[None]:
    """Put `model` into a mode; flags come back on the way out, exceptions included."""
    flags = [(module, module.training) for module in model.modules()]
    try:
        if mode != "as is":
            model.eval()
        if mode == "batch":
            for module, _ in flags:
                if isinstance(module, _BatchNorm):
                    module.train()
        with frozen_statistics(model):
            yield
    finally:
        for module, training in flags:
            module.training = training


def describe_mode(model: nn.Module, mode: Mode) -> str:
    """Say in words what BatchNorm does in a mode."""
    layers = [module for module in model.modules() if isinstance(module, _BatchNorm)]
    if not layers:
        return "no BatchNorm"
    if mode == "evaluation":
        return "BatchNorm in evaluation mode (running statistics)"
    if mode == "batch":
        return "BatchNorm with the statistics of each fixed batch"
    training = sum(module.training for module in layers)
    return f"BatchNorm as it stands ({training} of {len(layers)} layers in training mode)"
