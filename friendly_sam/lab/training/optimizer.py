"""From a config to an optimizer of `friendly_sam`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from friendly_sam.lab.config.methods import METHODS, build
from friendly_sam.lab.config.policies import policy
from friendly_sam.lab.config.schema import BaseConfig, RunConfig
from friendly_sam.lab.errors import LabError

NORM = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)
"""Layers of normalisation."""


def build_optimizer(
    config: RunConfig,
    model: nn.Module,
    full_gradient: Callable[[], Any] | None = None,
    *,
    steps: int,
    processes: int = 1,
) -> Optimizer:
    """Return the optimizer of a resolved config: the base alone, or `SharpnessAware` over it.

    Args:
        config: a config that `config.resolve` has been through.
        model: the network, in its DDP wrapper where there is one.
        full_gradient: forward and backward over the whole training set, for SAM-noise.
        steps: of the whole run, which a late start is a share of.
        processes: how many processes train together; alone, an ascent is always its own.
    """
    method, entry = config.method, METHODS[config.method.name]
    if not entry.components:
        return _base(config.base, model.parameters())
    return build(
        _base(config.base, _groups(model, method.layers)),
        method.name,
        {name: getattr(method, name) for name in entry.settings},
        when=policy(method, steps=steps, seed=config.seed),
        provided={"full_gradient": full_gradient},
        model=model,
        sync_ascent=method.sync_ascent or processes == 1,
    )


def _groups(model: nn.Module, layers: str) -> Iterable[Any]:
    """Return the parameters, in two groups where only some layers are perturbed."""
    if layers == "all":
        return model.parameters()
    with_own = [m for m in model.modules() if next(m.parameters(recurse=False), None) is not None]
    perturbed = with_own[-1:] if layers == "last" else [m for m in with_own if isinstance(m, NORM)]
    if not perturbed:
        raise LabError(f"method.layers={layers}: the network has no such layers")
    chosen = {parameter for module in perturbed for parameter in module.parameters(recurse=False)}
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
