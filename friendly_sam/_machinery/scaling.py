"""Gradients that a GradScaler has scaled."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.amp.grad_scaler import OptState


def inverse_scale(scaler: Any, optimizer: Any, device: torch.device) -> Tensor | None:
    """Return what makes the gradients true ones, without a look by the host; None for 1.

    Where `scaler.unscale_(optimizer)` has been called already, they are true. The scaler is then
    told that the gradients to come are scaled again; else it would step with them as they are.
    """
    if scaler is None or not scaler.is_enabled():
        return None
    state = scaler._per_optimizer_states[id(optimizer)]
    if state["stage"] is OptState.UNSCALED:
        state["stage"] = OptState.READY
        return None
    one = torch.ones((), device=device)
    scaled: Tensor = scaler.scale(one)  # get_scale() would synchronise
    return scaled.reciprocal()
