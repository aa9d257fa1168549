"""What a perturbation is made of: minibatch gradient, moving average, full gradient.

The paper (section 4) splits the minibatch gradient into its part along the full gradient and the
rest, the batch's own noise. These are the numbers that tell how well F-SAM removes the first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from friendly_sam.blocks import Climber, gather
from friendly_sam.directions import BatchNoise
from friendly_sam.optimizer import SharpnessAware
from friendly_sam.perturbation import climb
from friendly_sam.sharpness.objective import Objective


@dataclass(frozen=True)
class Decomposition:
    """Norms and cosines of one step; not a number where a vector is 0 or not there."""

    gradient_norm: float
    """||g||, of the minibatch gradient."""
    full_norm: float
    """||∇L||, of the full gradient."""
    average_norm: float
    """||m||, of the moving average, with g taken in."""
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
    climbers, places = _copies(objective, optimizer, gradient, full)
    if not climbers:
        return decompose(gradient, full)
    before = [climber.parameter.clone() for climber in climbers]
    climb(gather(climbers), optimizer.direction, optimizer.geometry, moved=[])
    eps, average = torch.zeros_like(full), torch.zeros_like(full)
    for climber, start, place in zip(climbers, before, places, strict=True):
        eps[place] = (climber.parameter - start).flatten().to(eps)
        if climber.average is not None:
            factor = _unbiased(optimizer, climber.updates + 1)
            average[place] = factor * climber.average.flatten().to(average)
    return decompose(
        gradient,
        full,
        average=average if optimizer.direction.keeps_average else None,
        perturbation=eps,
    )


def _copies(
    objective: Objective, optimizer: SharpnessAware, gradient: Tensor, full: Tensor
) -> tuple[list[Climber], list[slice]]:
    """Everything that climbs, copied in float64, and its places in vectors over the weights."""
    radii = {
        parameter: float(group[optimizer.radius_key])
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    scaled, memory = optimizer._scaled, optimizer.memory
    climbers, places, start = [], [], 0
    for parameter in objective.parameters:
        place = slice(start, start + parameter.numel())
        start = place.stop
        rho = radii.get(parameter, 0.0)
        if rho <= 0:
            continue

        def shaped(vector: Tensor, place: slice = place, like: Tensor = parameter) -> Tensor:
            return vector[place].view(like.shape).double().clone()

        weight = parameter.detach().double().clone()
        climber = Climber(weight, shaped(gradient), torch.empty_like(weight), rho)
        climber.scaled = scaled is None or parameter in scaled
        if optimizer.direction.keeps_average:
            known = memory.averages.get(parameter)
            fresh = torch.zeros_like(weight)
            climber.average = fresh if known is None else fresh.copy_(known)
            climber.updates = memory.updates.get(parameter, 0)
        if optimizer.direction.reference is not None:
            climber.reference = shaped(full)
        climbers.append(climber)
        places.append(place)
    return climbers, places


def _unbiased(optimizer: SharpnessAware, updates: int) -> float:
    direction = optimizer.direction
    if isinstance(direction, BatchNoise) and direction.variant == "debiased":
        return float(1 / (1 - direction.decay**updates))
    return 1.0


def _cosine(first: Tensor, second: Tensor) -> float:
    norms = float(first.norm() * second.norm())
    return float(first @ second) / norms if norms > 0 else math.nan
