"""How much the loss rises within a radius: along directions, at worst, and batch by batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from friendly_sam._machinery.checks import check_count, check_number
from friendly_sam.sharpness.directions import noise_direction, scale, step_along
from friendly_sam.sharpness.objective import Objective


@dataclass(frozen=True)
class Rise:
    """Rises of the loss over steps of one kind."""

    values: tuple[float, ...]
    """L(w + ε) - L(w), one for each ε."""

    @property
    def mean(self) -> float:
        """Their mean."""
        return math.fsum(self.values) / len(self.values)

    @property
    def standard_error(self) -> float:
        """Of the mean; not a number for one value."""
        n = len(self.values)
        if n < 2:
            return math.nan
        return math.sqrt(sum((v - self.mean) ** 2 for v in self.values) / (n - 1) / n)


def loss_rises(
    objective: Objective,
    rho: float,
    *,
    samples: int = 5,
    sigma: float = 1.0,
    adaptive: bool = False,
    eta: float = 0.0,
    seed: int = 0,
) -> dict[str, Rise]:
    """Measure L(w + ε) - L(w) at radius ρ along the directions of SAM, F-SAM, and at random.

    Every rise is that of the loss over all data, whatever batch the direction comes from:

        full       ε along ∇L(w), what SAM would do with all data as its batch
        batch      ε along ∇L_B(w), SAM's step on the batches B of the data
        friendly   ε along ∇L_B(w) - σ ∇L(w), F-SAM's with the full gradient as its average
        random     ε along Gaussian vectors

    Args:
        objective: L.
        rho: ρ.
        samples: batches, and random vectors, that are tried.
        sigma: σ.
        adaptive: T = |w| + `eta` instead of T = 1.
        eta: η.
        seed: of the random vectors.

    Example:
        >>> import torch
        >>> from friendly_sam.sharpness import Objective, loss_rises
        >>> model = torch.nn.Linear(3, 2)
        >>> data = [(torch.randn(8, 3), torch.randint(2, (8,))) for _ in range(4)]
        >>> rises = loss_rises(Objective(model, torch.nn.functional.cross_entropy, data), 0.1)
        >>> rises["full"].mean > rises["random"].mean
        True
    """
    check_count("samples", samples)
    shape = scale(objective, adaptive=adaptive, eta=eta)
    base, gradient = objective.loss_and_gradient()
    generator = torch.Generator().manual_seed(seed)
    batches = list(islice(iter(objective.data), samples))

    def rise(direction: Tensor) -> float:
        return objective.loss(step_along(direction, rho, shape)) - base

    return {
        "full": Rise((rise(gradient),)),
        "batch": Rise(tuple(rise(objective.batch_gradient(batch)) for batch in batches)),
        "friendly": Rise(
            tuple(
                rise(noise_direction(objective, batch, reference=gradient, sigma=sigma))
                for batch in batches
            )
        ),
        "random": Rise(tuple(rise(objective.random_vector(generator)) for _ in range(samples))),
    }


def worst_rise(
    objective: Objective,
    rho: float,
    *,
    steps: int = 10,
    adaptive: bool = False,
    eta: float = 0.0,
) -> float:
    """Bound max L(w + ε) - L(w) over ||T⁻¹ ε|| <= ρ from below, by projected ascent.

    The first ε is SAM's; each later one goes half a radius further along the gradient found there
    and back into the neighbourhood. The best one counts, so the result is never below SAM's rise,
    nor 0.

    Args:
        objective: L.
        rho: ρ.
        steps: gradients that are taken.
        adaptive: T = |w| + `eta` instead of T = 1.
        eta: η.
    """
    check_count("steps", steps)
    check_number("rho", rho, at_least=0)
    shape = scale(objective, adaptive=adaptive, eta=eta)
    base, gradient = objective.loss_and_gradient()
    offset = step_along(gradient, rho, shape)
    best = 0.0
    for _ in range(steps):
        value, gradient = objective.loss_and_gradient(offset)
        best = max(best, value - base)
        offset = _onto_sphere(offset + step_along(gradient, rho / 2, shape), rho, shape)
    return max(best, objective.loss(offset) - base)


def m_sharpness(
    objective: Objective,
    rho: float,
    sizes: Sequence[int],
    *,
    groups: int = 20,
    adaptive: bool = False,
    eta: float = 0.0,
    seed: int = 0,
) -> dict[int, Rise]:
    """Measure m-sharpness (Foret et al., 2021) for several m.

    The data is shuffled and cut into groups of m samples; each group is perturbed along its own
    gradient, and its own loss is looked at:

        mean over groups S of  L_S(w + ε_S) - L_S(w),   ε_S = ρ T² ∇L_S / ||T ∇L_S||

    Args:
        objective: L, over batches of (inputs, targets) tensors.
        rho: ρ.
        sizes: the m to try; each at most the number of samples.
        groups: groups that are tried at most, for each m.
        adaptive: T = |w| + `eta` instead of T = 1.
        eta: η.
        seed: of the shuffle.
    """
    check_count("groups", groups)
    shape = scale(objective, adaptive=adaptive, eta=eta)
    inputs, targets = _joined(objective)
    order = torch.randperm(len(inputs), generator=torch.Generator().manual_seed(seed))
    found = {}
    for size in sizes:
        check_count("sizes", size)
        if size > len(inputs):
            raise ValueError(f"sizes must be at most the {len(inputs)} samples, not {size}")
        values = []
        for start in range(0, len(inputs) - size + 1, size)[:groups]:
            rows = order[start : start + size].to(inputs.device)
            own = objective.over([(inputs[rows], targets[rows])])
            base, gradient = own.loss_and_gradient()
            values.append(own.loss(step_along(gradient, rho, shape)) - base)
        found[size] = Rise(tuple(values))
    return found


def _onto_sphere(offset: Tensor, rho: float, shape: Tensor | None) -> Tensor:
    """Shrink ε so that ||T⁻¹ ε|| <= ρ; where T = 0 the weight cannot move."""
    inner = offset if shape is None else torch.where(shape > 0, offset / shape, 0.0)
    norm = float(inner.norm())
    return offset if norm <= rho else offset * (rho / norm)


def _joined(objective: Objective) -> tuple[Tensor, Tensor]:
    pairs = [(batch[0], batch[1]) for batch in objective.data]
    if not all(isinstance(part, Tensor) for pair in pairs for part in pair):
        raise TypeError("m_sharpness needs batches of (inputs, targets) tensors")
    return torch.cat([pair[0] for pair in pairs]), torch.cat([pair[1] for pair in pairs])
