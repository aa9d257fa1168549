"""A smooth non-convex loss whose constants are known exactly, and F-SAM runs on it.

    L(w)   = Σ_j c_j φ((Q w)_j - a_j),   φ(u) = u² / (1 + u²)      Q a rotation
    L_i(w) = L(w) + <ζ_i, w>,            Σ_i ζ_i = 0, ||ζ_i|| = r nearly

φ is Geman and McClure's robust loss: non-convex beyond |u| = 1/√3, with |φ'| <= 9/(8√3) and
|φ''| <= 2, both attained. So, with ∇L_B(w) = ∇L(w) + ζ_B:

    β = 2 max_j c_j               of L and of every batch loss (assumption 1)
    M = mean_i ||ζ_i||² / b       at every w, at w + ε too, whatever ε knows of the batch: ζ_B does
                                  not depend on w (assumption 2, with equality)
    G = 9/(8√3) ||c|| + max_i ||ζ_i||     bounds every batch gradient, not only its mean
                                          (assumption 3, as the proofs use it)
    L* = 0                        at Q w = a
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from friendly_sam import FriendlySAM, RadiusSchedule

STEEPEST = 9 / (8 * math.sqrt(3))
"""max |φ'|, at u = 1/√3."""


@dataclass(frozen=True)
class Problem:
    """The loss, its noise and its constants. Samples are drawn with replacement."""

    dimension: int = 20
    samples: int = 512
    batch: int = 8
    noise: float = 2.0
    """r, before the noise vectors are centred."""
    spread: float = 1.0
    """How far the start is from the minimum, for each coordinate."""
    seed: int = 7

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.seed)

        def gaussian(*shape: int) -> Tensor:
            return torch.randn(*shape, dtype=torch.float64, generator=generator)

        rotation = torch.linalg.qr(gaussian(self.dimension, self.dimension))[0]
        zeta = gaussian(self.samples, self.dimension)
        zeta = self.noise * zeta / zeta.norm(dim=1, keepdim=True)
        for name, value in (
            ("rotation", rotation),
            ("strengths", torch.linspace(0.5, 1.0, self.dimension, dtype=torch.float64)),
            ("centres", gaussian(self.dimension)),
            ("zeta", zeta - zeta.mean(dim=0)),
        ):
            object.__setattr__(self, name, value)

    rotation: Tensor = None  # type: ignore[assignment]
    strengths: Tensor = None  # type: ignore[assignment]
    centres: Tensor = None  # type: ignore[assignment]
    zeta: Tensor = None  # type: ignore[assignment]

    # -- constants --------------------------------------------------------------------------

    @property
    def beta(self) -> float:
        """β, of every batch loss."""
        return 2 * float(self.strengths.max())

    @property
    def variance(self) -> float:
        """M, of a batch gradient, at every w."""
        return float(self.zeta.square().sum(dim=1).mean()) / self.batch

    @property
    def bound(self) -> float:
        """G, of the norm of every batch gradient."""
        steepest = STEEPEST * float(self.strengths.norm())
        return steepest + float(self.zeta.norm(dim=1).max())

    @property
    def gap(self) -> float:
        """Δ = L(w_0) - L*."""
        return self.loss(self.start())

    # -- the loss ---------------------------------------------------------------------------

    def start(self) -> Tensor:
        """w_0: each coordinate of Q w is `spread` away from its centre."""
        return self.rotation.T @ (self.centres + self.spread)

    def loss(self, weight: Tensor) -> float:
        """L(w)."""
        squares = (self.rotation @ weight.detach() - self.centres).square()
        return float((self.strengths * squares / (1 + squares)).sum())

    def gradient(self, weight: Tensor) -> Tensor:
        """∇L(w)."""
        offset = self.rotation @ weight.detach() - self.centres
        return self.rotation.T @ (2 * self.strengths * offset / (1 + offset.square()).square())

    def batch_noise(self, steps: int, seed: int) -> Tensor:
        """ζ_B of `steps` batches, a row each."""
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randint(self.samples, (steps, self.batch), generator=generator)
        return self.zeta[drawn].mean(dim=1)


@dataclass(frozen=True)
class Step:
    """What a step of F-SAM saw, before the weights moved."""

    gradient: Tensor
    """∇L_B(w_t)."""
    full: Tensor
    """∇L(w_t)."""
    average: Tensor
    """m_t, with ∇L_B(w_t) taken in; divided by 1 - λ^t where the variant is debiased."""


def friendly_run(
    problem: Problem,
    *,
    steps: int,
    lr: float,
    seed: int,
    rho: float,
    decay: float = 0.9,
    inverse_sqrt: bool = False,
    **settings: Any,
) -> Iterator[Step]:
    """Run the library's F-SAM over plain SGD from the problem's start, a step at a time.

    Args:
        problem: the loss.
        steps: T.
        lr: γ; with 0 the weights stay where they are.
        seed: of the batches.
        rho: ρ, or ρ_0.
        decay: λ.
        inverse_sqrt: let the radius fall as ρ_0/√t.
        settings: further settings of `FriendlySAM` (`sigma`, `variant`).
    """
    weight = nn.Parameter(problem.start())
    optimizer = FriendlySAM(torch.optim.SGD([weight], lr=lr), rho, decay=decay, **settings)
    schedule = RadiusSchedule.inverse_sqrt(optimizer) if inverse_sqrt else None
    debiased = settings.get("variant") == "debiased"
    for t, noise in enumerate(problem.batch_noise(steps, seed), start=1):
        full = problem.gradient(weight)

        def closure(noise: Tensor = noise) -> float:
            weight.grad = problem.gradient(weight) + noise
            return 0.0

        optimizer.step(closure)
        if schedule is not None:
            schedule.step()
        average = optimizer.memory.tensors("ema")[weight].clone()
        if debiased:
            average /= 1 - decay**t
        yield Step(full + noise, full, average)
