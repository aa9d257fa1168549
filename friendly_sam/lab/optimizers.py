"""From a config to an optimizer of `friendly_sam`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
from friendly_sam.lab.errors import LabError

Value = TypeVar("Value")

NORM = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)
"""Layers of normalisation."""


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
    method = config.method
    if method.name == "base":
        return _base(config.base, model.parameters())
    return SharpnessAware(
        _base(config.base, _groups(model, method.layers)),
        _resolved(method.rho),
        direction=_direction(method, full_gradient),
        geometry=_geometry(method),
        model=model,
        every=method.every,
        sync_ascent=method.sync_ascent or processes == 1,
        replay_rng=method.replay_rng,
        fused=config.engine.fused,
    )


def _groups(model: nn.Module, layers: str) -> Iterable[Any]:
    """Give the parameters, in two groups where only some layers climb."""
    if layers == "all":
        return model.parameters()
    with_own = [m for m in model.modules() if next(m.parameters(recurse=False), None) is not None]
    climbing = with_own[-1:] if layers == "last" else [m for m in with_own if isinstance(m, NORM)]
    if not climbing:
        raise LabError(f"method.layers={layers}: the network has no such layers")
    chosen = {parameter for module in climbing for parameter in module.parameters(recurse=False)}
    rest = [parameter for parameter in model.parameters() if parameter not in chosen]
    return [
        {"params": [parameter for parameter in model.parameters() if parameter in chosen]},
        {"params": rest, "rho": 0.0},
    ]


def _base(config: BaseConfig, parameters: Iterable[Any]) -> Optimizer:
    parameters = [p for p in parameters if isinstance(p, dict) or p.requires_grad]
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
            dtype=torch.bfloat16 if method.average == "bf16" else None,
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
