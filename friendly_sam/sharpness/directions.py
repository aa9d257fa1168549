"""Directions in weight space and the steps along them: random ones, SAM's, F-SAM's.

A step of radius ρ along d is the one formula of the library, ε = ρ T² d / ||T d||, with T = 1
(Euclidean) or T = |w| + η (adaptive, as in ASAM): ||T⁻¹ ε|| = ρ.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from friendly_sam._machinery.checks import check_number
from friendly_sam.sharpness.objective import Objective
from friendly_sam.sharpness.vectors import flatten, unflatten


def scale(objective: Objective, *, adaptive: bool, eta: float = 0.0) -> Tensor | None:
    """T as a vector; None for T = 1."""
    check_number("eta", eta, at_least=0)
    return objective.weights().abs() + eta if adaptive else None


def step_along(direction: Tensor, rho: float, shape: Tensor | None = None) -> Tensor:
    """ε = ρ T² d / ||T d||, `shape` being T; 0 for d = 0.

    Example:
        >>> import torch
        >>> from friendly_sam.sharpness import step_along
        >>> step_along(torch.tensor([3.0, 4.0]), 0.5)
        tensor([0.3000, 0.4000])
    """
    check_number("rho", rho, at_least=0)
    stretched = direction if shape is None else shape * direction
    norm = stretched.norm()
    if not bool(norm > 0):
        return torch.zeros_like(direction)
    reshaped = stretched if shape is None else shape * stretched
    return torch.mul(reshaped, rho / norm)


def noise_direction(
    objective: Objective, batch: Any, *, reference: Tensor, sigma: float = 1.0
) -> Tensor:
    """F-SAM's direction on a batch: d = ∇L_B(w) - σ m.

    Args:
        objective: L.
        batch: B, in the form that the objective's data has.
        reference: m. During training it is the EMA; on a checkpoint the full gradient
            `objective.gradient()`, which the average stands for.
        sigma: σ.
    """
    check_number("sigma", sigma)
    return objective.batch_gradient(batch) - sigma * reference


def filter_normalised(direction: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Scale each filter of a direction to the norm of the filter it moves (Li et al., 2018).

    A filter is a row of a weight's first dimension. Biases and normalisation weights (one
    dimension) are set to 0, as in the authors' code: scaling them changes little but noise.

    Example:
        >>> import torch
        >>> from friendly_sam.sharpness import filter_normalised
        >>> weight = torch.tensor([[3.0, 4.0], [0.0, 1.0]])
        >>> filter_normalised(torch.ones(4), [weight]).view(2, 2).norm(dim=1).round()
        tensor([5., 1.])
    """
    pieces = []
    for piece, parameter in zip(unflatten(direction, parameters), parameters, strict=True):
        if parameter.ndim <= 1:
            pieces.append(torch.zeros_like(piece))
            continue
        rows, wanted = piece.flatten(1), parameter.detach().flatten(1)
        norms = rows.norm(dim=1, keepdim=True)
        factor = torch.where(norms > 0, wanted.norm(dim=1, keepdim=True) / norms, 0.0)
        pieces.append((rows * factor).view_as(piece))
    return flatten(pieces, direction.dtype, direction.device)


def random_directions(
    objective: Objective, count: int, *, seed: int = 0, filters: bool = True
) -> list[Tensor]:
    """Draw random directions, orthogonal to each other where they are not filter-normalised.

    Args:
        objective: whose weights they move.
        count: how many.
        seed: of the draw.
        filters: normalise each filter, see `filter_normalised`; otherwise unit vectors.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = [objective.random_vector(generator) for _ in range(count)]
    if filters:
        return [filter_normalised(vector, objective.parameters) for vector in drawn]
    return _orthonormal(drawn)


def _orthonormal(vectors: Iterable[Tensor]) -> list[Tensor]:
    found: list[Tensor] = []
    for vector in vectors:
        for _ in range(2):
            for other in found:
                vector = vector - (other @ vector) * other
        found.append(vector / vector.norm())
    return found
