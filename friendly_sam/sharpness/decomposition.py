"""What a perturbation is made of: minibatch gradient, EMA, full gradient.

The paper (section 4) splits the minibatch gradient into its part along the full gradient and the
rest, the batch's own noise. These are the numbers that tell how well F-SAM removes the first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from friendly_sam._machinery.blocks import Slot, gather
from friendly_sam._machinery.gradients import Gradients, signed_radius
from friendly_sam.ascent import perturb
from friendly_sam.directions import BatchNoise
from friendly_sam.optimizer import SharpnessAware
from friendly_sam.sharpness.objective import Objective


@dataclass(frozen=True)
class Decomposition:
    """Norms and cosines of one step; not a number where a vector is 0 or not there."""

    gradient_norm: float
    """||g||, of the minibatch gradient."""
    full_norm: float
    """||∇L||, of the full gradient."""
    average_norm: float
    """||m||, of the EMA, with g taken in."""
    gradient_full_cosine: float
    """cos(g, ∇L)."""
    average_full_cosine: float
    """cos(m, ∇L)."""
    gradient_average_cosine: float
    """cos(g, m)."""
    perturbation_full_cosine: float
    """cos(ε, ∇L): 0 if nothing of the full gradient is left in the perturbation."""
    full_share: float
    """cos²(ε, ∇L), the share of ||ε||² that lies along the full gradient."""
    average_error: float
    """||m - ∇L||, what theorem 1 bounds."""
    relative_average_error: float
    """||m - ∇L|| / ||∇L||."""

    def metrics(self, prefix: str = "decomposition_") -> dict[str, float]:
        """The numbers by name, as a log takes them; those that are no number are left out."""
        values = {prefix + field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if math.isfinite(value)}


def decompose(
    gradient: Tensor,
    full: Tensor,
    *,
    average: Tensor | None = None,
    perturbation: Tensor | None = None,
) -> Decomposition:
    """Compare the vectors of one step.

    Args:
        gradient: g.
        full: ∇L.
        average: m, if there is one.
        perturbation: ε, or any vector along it.

    Example:
        >>> import torch
        >>> from friendly_sam.sharpness import decompose
        >>> g, full = torch.tensor([1.0, 1.0]), torch.tensor([2.0, 0.0])
        >>> found = decompose(g, full, average=full, perturbation=g - full)
        >>> round(found.full_share, 3), found.average_error
        (0.5, 0.0)
    """
    nothing = torch.full_like(gradient, math.nan)
    m = nothing if average is None else average
    eps = nothing if perturbation is None else perturbation
    along = _cosine(eps, full)
    error = float((m - full).norm())
    norm = float(full.norm())
    return Decomposition(
        gradient_norm=float(gradient.norm()),
        full_norm=norm,
        average_norm=float(m.norm()),
        gradient_full_cosine=_cosine(gradient, full),
        average_full_cosine=_cosine(m, full),
        gradient_average_cosine=_cosine(gradient, m),
        perturbation_full_cosine=along,
        full_share=along**2,
        average_error=error,
        relative_average_error=error / norm if norm > 0 else math.nan,
    )


def decompose_step(objective: Objective, optimizer: SharpnessAware, batch: Any) -> Decomposition:
    """Look at the perturbation that `optimizer` would make on a batch, without making it.

    ε comes from the library's own code, on copies: weights, averages and counters stay as they
    are, so this can be called at any time during training. It costs a full gradient.

    Args:
        objective: L over the training data, of the model that is trained.
        optimizer: any method of the library.
        batch: B, in the form that the objective's data has.
    """
    gradient, full = objective.batch_gradient(batch), objective.gradient()
    slots, places = _copies(objective, optimizer, gradient, full)
    if not slots:
        return decompose(gradient, full)
    before = [slot.parameter.clone() for slot in slots]
    perturb(gather(slots), optimizer.direction, optimizer.geometry, moved=[])
    eps, average = torch.zeros_like(full), torch.zeros_like(full)
    for slot, start, place in zip(slots, before, places, strict=True):
        eps[place] = (slot.parameter - start).flatten().to(eps)
        if slot.memory is not None and optimizer.direction.keeps_ema:
            factor = _unbiased(optimizer, int(slot.updates) + 1)
            average[place] = factor * slot.memory.flatten().to(average)
    return decompose(
        gradient,
        full,
        average=average if optimizer.direction.keeps_ema else None,
        perturbation=eps,
    )


def _copies(
    objective: Objective, optimizer: SharpnessAware, gradient: Tensor, full: Tensor
) -> tuple[list[Slot], list[slice]]:
    """Return all that is perturbed, copied in float64, and its places in flat vectors."""
    groups = {parameter: group for group, parameter in optimizer.groups.members()}
    memory, source = optimizer.memory, optimizer.direction.starts_from
    slots, places, start = [], [], 0
    for parameter in objective.parameters:
        place = slice(start, start + parameter.numel())
        start = place.stop
        group = groups.get(parameter)
        if group is None or (rho := optimizer.groups.radius(group)) <= 0:
            continue

        def shaped(vector: Tensor, place: slice = place, like: Tensor = parameter) -> Tensor:
            return vector[place].view(like.shape).double().clone()

        known = None if source == "gradient" else Gradients(optimizer).source(source, parameter)
        if source != "gradient" and known is None:
            continue  # a direction without an ascent pass, before its first step
        along = shaped(gradient) if known is None else known.detach().double().clone()
        weight = parameter.detach().double().clone()
        slot = Slot(weight, along, torch.empty_like(weight), rho=signed_radius(rho, source, group))
        slot.scaled = optimizer.scales(group, parameter)
        if optimizer.direction.keeps_ema:
            known = memory.tensors("ema").get(parameter)
            fresh = torch.zeros_like(weight)
            slot.memory = fresh if known is None else fresh.copy_(known)
            slot.updates = int(memory.updates.get(parameter, 0))
        if optimizer.direction.reference is not None:
            slot.memory = shaped(full)
        slots.append(slot)
        places.append(place)
    return slots, places


def _unbiased(optimizer: SharpnessAware, updates: int) -> float:
    direction = optimizer.direction
    if isinstance(direction, BatchNoise) and direction.variant == "debiased":
        return float(1 / (1 - direction.decay**updates))
    return 1.0


def _cosine(first: Tensor, second: Tensor) -> float:
    norms = float(first.norm() * second.norm())
    return float(first @ second) / norms if norms > 0 else math.nan
