"""Mixed precision: GradScaler, autocast, weights in half precision."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn

from friendly_sam import SharpnessAware
from friendly_sam.lab.bench.recipes import RECIPES, Recipe
from friendly_sam.lab.promises.exact import RHO, need
from friendly_sam.lab.promises.outcome import BrokenPromiseError, Check, NotApplicableError
from friendly_sam.lab.promises.plain import LOOK_EVERY
from friendly_sam.lab.promises.problem import (
    backward,
    network,
    same,
    sgd,
    starts_from_gradient,
    step_by_hand,
    weights,
)

SCALE = 2.0**10
STEPS, LEARNT = 40, 0.8
"""After so many steps on one batch the loss must be down to this part of its start."""


def checks(device: torch.device) -> Iterator[Check]:
    """Return the checks of this module."""
    yield Check("GradScaler whose scale changes", lambda: _changing_scale(device))
    yield Check("GradScaler, first gradient overflows", lambda: _overflow(device))
    yield Check("bfloat16 autocast", lambda: _learns(device, torch.float32, autocast=True))
    yield Check("weights in bfloat16", lambda: _learns(device, torch.bfloat16))


def _scaler(device: torch.device, *, enabled: bool = True) -> torch.amp.GradScaler:
    scaler = torch.amp.GradScaler(device.type, init_scale=SCALE, growth_interval=2, enabled=enabled)
    if enabled and not scaler.is_enabled():
        raise NotApplicableError(f"torch has no GradScaler for {device.type}")
    return scaler


def _run(
    device: torch.device, recipe: Recipe, scaler: torch.amp.GradScaler
) -> tuple[nn.Module, SharpnessAware]:
    model = network(device, torch.float32)
    optimizer = recipe(sgd(model), RHO)
    for number in range(LOOK_EVERY + 2):
        step_by_hand(optimizer, backward(model, number, scale=scaler.scale), scaler)
    return model, optimizer


def _changing_scale(device: torch.device) -> str:
    """Scales are powers of two, so they must not change a bit."""
    for name, recipe in RECIPES.items():
        scaler = _scaler(device)
        model, optimizer = _run(device, recipe, scaler)
        if not scaler.get_scale() > SCALE:
            raise BrokenPromiseError(f"{name}: the scale did not grow, so steps were skipped")
        plain, reference = _run(device, recipe, _scaler(device, enabled=False))
        same(weights(model), weights(plain), f"{name}: weights with and without a scale")
        same(_emas(optimizer), _emas(reference), f"{name}: EMA with and without a scale")
    return f"{len(RECIPES)} recipes"


def _overflow(device: torch.device) -> str:
    for name, recipe in RECIPES.items():
        scaler = _scaler(device)
        model, optimizer = _run(device, recipe, scaler)
        if not starts_from_gradient(optimizer):
            continue
        before = [ema.clone() for ema in _emas(optimizer)]
        backward(model, 0, scale=partial(_overflowing, scaler))()
        if optimizer.ascent_due:
            with optimizer.perturbed(scaler=scaler):
                backward(model, 0, scale=scaler.scale)()
        else:
            optimizer.skip(scaler=scaler)
        scaler.step(optimizer)
        scaler.update()
        same(_emas(optimizer), before, f"{name}: EMA before and after the overflow")
        if not all(bool(w.isfinite().all()) for w in weights(model)):
            raise BrokenPromiseError(f"{name}: weights are not finite")
    return f"{len(RECIPES)} recipes"


def _overflowing(scaler: torch.amp.GradScaler, loss: Tensor) -> Tensor:
    return scaler.scale(loss) * float("inf")


def _learns(device: torch.device, dtype: torch.dtype, *, autocast: bool = False) -> str:
    need(device, torch.bfloat16)
    worst = 0.0
    for name, recipe in RECIPES.items():
        model = network(device, dtype)
        optimizer = recipe(sgd(model), RHO)
        run = backward(model, 0, autocast=autocast)
        losses = [optimizer.step(run).item() for _ in range(STEPS)]
        part = losses[-1] / losses[0]
        if not part < LEARNT:
            raise BrokenPromiseError(
                f"{name}: the loss went from {losses[0]:.3f} to {losses[-1]:.3f} in {STEPS} steps"
            )
        worst = max(worst, part)
    return f"{len(RECIPES)} recipes, loss down to {worst:.2f} of its start or less"


def _emas(optimizer: SharpnessAware) -> list[Tensor]:
    return list(optimizer.memory.tensors("ema").values())
