"""From a config to an optimizer of `friendly_sam`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

from friendly_sam import (
    BatchNoise,
    DiagonalFisher,
    Euclidean,
    Gradient,
    ParameterScaled,
    Residual,
    SharpnessAware,
)
from friendly_sam.directions import Direction
from friendly_sam.geometries import Geometry
from friendly_sam.lab.config import BaseConfig, MethodConfig, RunConfig

Value = TypeVar("Value")


def build_optimizer(
    config: RunConfig,
    model: nn.Module,
    full_gradient: Callable[[], Any] | None = None,
    *,
    processes: int = 1,
) -> Optimizer:
    """Give the optimizer of a resolved config: the base alone, or `SharpnessAware` over it.

    Args:
        config: a config that `methods.resolve` has been through.
        model: the network, in its DDP wrapper where there is one.
        full_gradient: forward and backward over the whole training set, for SAM-noise.
        processes: how many processes train together; alone, an ascent is always its own.
    """
    base = _base(config.base, model)
    method = config.method
    if method.name == "base":
        return base
    return SharpnessAware(
        base,
        _resolved(method.rho),
        direction=_direction(method, full_gradient),
        geometry=_geometry(method),
        model=model,
        every=method.every,
        sync_ascent=method.sync_ascent or processes == 1,
        replay_rng=method.replay_rng,
    )


def _base(config: BaseConfig, model: nn.Module) -> Optimizer:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if config.name == "adamw":
        return torch.optim.AdamW(
            parameters, lr=config.lr, betas=config.betas, weight_decay=config.weight_decay
        )
    return torch.optim.SGD(
        parameters,
        lr=config.lr,
        momentum=config.momentum,
        nesterov=config.nesterov,
        weight_decay=config.weight_decay,
    )


def _direction(method: MethodConfig, full_gradient: Callable[[], Any] | None) -> Direction:
    if method.name in ("fsam", "fasam", "ffishersam"):
        return BatchNoise(
            sigma=_resolved(method.sigma),
            decay=_resolved(method.decay),
            variant=_resolved(method.variant),
        )
    if method.name == "sam-noise":
        if full_gradient is None:
            raise ValueError("sam-noise needs full_gradient")
        return Residual(full_gradient)
    return Gradient()


def _geometry(method: MethodConfig) -> Geometry:
    if method.name in ("asam", "fasam"):
        only = method.only
        return ParameterScaled(
            eta=_resolved(method.eta), only=None if only is None else lambda name: only in name
        )
    if method.name in ("fishersam", "ffishersam"):
        return DiagonalFisher(eta=_resolved(method.eta))
    return Euclidean()


def _resolved(value: Value | None) -> Value:
    if value is None:
        raise ValueError("a method's setting is None: resolve() the config first")
    return value
