"""The components that methods are made of, each with the settings that apply to it.

A default names its source. A new component of `friendly_sam` is one entry here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from friendly_sam import (
    Average,
    BatchNoise,
    DiagonalFisher,
    Euclidean,
    Gradient,
    Momentum,
    ParameterScaled,
    Residual,
    Reused,
    Stale,
    SurrogateGap,
    Weighted,
)


@dataclass(frozen=True)
class Setting:
    """The default of a setting, and where it comes from."""

    default: Any
    source: str


@dataclass(frozen=True)
class Component:
    """One component of a method, with the settings that it takes."""

    keyword: Literal["direction", "geometry", "descent"]
    """The argument of `SharpnessAware` that it is."""
    build: Callable[..., Any]
    """From the settings, by name, to the component."""
    settings: Mapping[str, Setting] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    """What else `build` takes: things that the training loop has, such as `full_gradient`."""


AVERAGES = {"full": None, "bf16": torch.bfloat16}
"""The precision of the EMA by its name; `None` is that of the gradients."""


def _batch_noise(sigma: Any, decay: float, variant: Any, average: str) -> BatchNoise:
    if average not in AVERAGES:
        raise ValueError(f"average must be {' or '.join(AVERAGES)}, not {average!r}")
    return BatchNoise(sigma=sigma, decay=decay, variant=variant, dtype=AVERAGES[average])


def _parameter_scaled(eta: float, only: str | None) -> ParameterScaled:
    if only is not None and not isinstance(only, str):
        raise TypeError(f"only must be a string, part of a parameter's name, not {only!r}")
    return ParameterScaled(eta, only=None if only is None else lambda name: only in name)


GRADIENT = Component("direction", Gradient)
BATCH_NOISE = Component(
    "direction",
    _batch_noise,
    {
        "sigma": Setting(1.0, "the F-SAM paper, section 6.1"),
        "decay": Setting(0.9, "the F-SAM paper, section 6.1: best for the larger networks"),
        "variant": Setting("paper", "the F-SAM paper, algorithm 1"),
        "average": Setting("full", "this project: the EMA in the dtype of the gradients"),
    },
)
RESIDUAL = Component("direction", Residual, needs=("full_gradient",))
AVERAGE = Component(
    "direction", Average, {"theta": Setting(0.4, "VaSSO, the experiments on CIFAR")}
)
MOMENTUM = Component("direction", Momentum)
STALE_GRADIENT = Component("direction", lambda: Stale(Gradient()))
STALE_BATCH_NOISE = Component(
    "direction", lambda **settings: Stale(_batch_noise(**settings)), BATCH_NOISE.settings
)
EUCLIDEAN = Component("geometry", Euclidean)
PARAMETER_SCALED = Component(
    "geometry",
    _parameter_scaled,
    {
        "eta": Setting(0.01, "SamsungLabs/ASAM"),
        "only": Setting(None, "the F-SAM paper scales all parameters; SamsungLabs: weight"),
    },
)
DIAGONAL_FISHER = Component(
    "geometry", DiagonalFisher, {"eta": Setting(1.0, "this project: the paper names none")}
)
SURROGATE_GAP = Component(
    "descent", SurrogateGap, {"alpha": Setting(0.4, "GSAM, the example of its code")}
)
WEIGHTED = Component("descent", Weighted, {"gamma": Setting(0.9, "WSAM, atorch")})
REUSED = Component("descent", Reused, {"alpha": Setting(0.7, "LookSAM, the main experiments")})
