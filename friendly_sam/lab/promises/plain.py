"""The methods as their papers write them: vectors of float64 on the CPU, nothing clever.

All parameters are one vector w. With g the gradient at w and g' the one at w + ε, a formula says
what ε is and what the base optimizer, SGD with momentum and weight decay, gets. The sources are
those that the recipes name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from friendly_sam.lab.promises.problem import (
    CLASSES,
    DECAY,
    HIDDEN,
    INPUTS,
    LR,
    MOMENTUM,
    batch,
    network,
)

CPU = torch.device("cpu")
LOOK_EVERY = 5
NOTHING = 1e-12


@dataclass
class Plain:
    """SAM: ε = ρ g / ||g||. Others override a line of it."""

    rho: float = 0.05
    m: Tensor | None = None
    steps: int = 0

    def direction(self, g: Tensor) -> Tensor:
        """Return d."""
        return g

    def geometry(self, w: Tensor, g: Tensor) -> Tensor:
        """Return T."""
        return torch.ones_like(w)

    def descent(self, g: Tensor, p: Tensor) -> Tensor:
        """Return u from g and p = g'."""
        return p

    def update(self, w: Tensor, v: Tensor, gradient: Callable[[Tensor], Tensor]) -> Tensor:
        """Return what the base optimizer gets, v being its momentum."""
        g = gradient(w)
        t, d = self.geometry(w, g), self.direction(g)
        eps = self.rho * t**2 * d / (t * d).norm()
        if d.norm() <= NOTHING * g.norm():  # a difference of equals: no direction
            eps = torch.zeros_like(w)
        self.steps += 1
        return self.descent(g, gradient(w + eps))


class ASAM(Plain):
    """T = |w| + 0.01."""

    def geometry(self, w: Tensor, g: Tensor) -> Tensor:
        """Return T."""
        return w.abs() + 0.01


class FisherSAM(Plain):
    """T² = 1 / (1 + g²)."""

    def geometry(self, w: Tensor, g: Tensor) -> Tensor:
        """Return T."""
        return (1 + g**2) ** -0.5


class FriendlySAM(Plain):
    """m ← 0.9 m + 0.1 g, d = g - m."""

    def direction(self, g: Tensor) -> Tensor:
        """Return d, with the new m."""
        old = torch.zeros_like(g) if self.m is None else self.m
        self.m = 0.9 * old + 0.1 * g
        return g - self.share(g) * self.m

    def share(self, g: Tensor) -> float | Tensor:
        """Return how much of m is taken away."""
        return 1.0


class Authors(FriendlySAM):
    """m starts as the first gradient, and d uses the previous m."""

    def direction(self, g: Tensor) -> Tensor:
        """Return d, with the previous m."""
        if self.m is None:
            self.m = g
            return g
        d = g - self.m
        self.m = 0.9 * self.m + 0.1 * g
        return d


class Debiased(FriendlySAM):
    """m is divided by 1 - 0.9^t; nothing is taken away on the first step."""

    def share(self, g: Tensor) -> float | Tensor:
        """Return how much of m is taken away."""
        return 0.0 if self.steps == 0 else 1 / (1 - 0.9 ** (self.steps + 1))


class Projection(FriendlySAM):
    """d = g - (<g,m>/||m||²) m."""

    def share(self, g: Tensor) -> float | Tensor:
        """Return how much of m is taken away."""
        assert self.m is not None
        return g @ self.m / (self.m @ self.m)


class FriendlyASAM(FriendlySAM, ASAM):
    """F-SAM's d in ASAM's neighbourhood."""


class FriendlyFisherSAM(FriendlySAM, FisherSAM):
    """F-SAM's d in FisherSAM's neighbourhood."""


class VaSSO(Plain):
    """m starts as the first gradient, m ← 0.6 m + 0.4 g, d = m."""

    def direction(self, g: Tensor) -> Tensor:
        """Return m."""
        self.m = g if self.m is None else 0.6 * self.m + 0.4 * g
        return self.m


class MSAM(Plain):
    """One pass at w + ε, ε = -ρ v / ||v||; none while there is no momentum."""

    def update(self, w: Tensor, v: Tensor, gradient: Callable[[Tensor], Tensor]) -> Tensor:
        """Return g'."""
        self.steps += 1
        return gradient(w - self.rho * v / v.norm() if v.any() else w)


class GSAM(Plain):
    """u = g' - 0.4 (g - (<g,g'>/||g'||²) g')."""

    def descent(self, g: Tensor, p: Tensor) -> Tensor:
        """Return u."""
        return p - 0.4 * (g - (g @ p / (p @ p)) * p)


class WSAM(Plain):
    """u = 9 g' - 8 g, that is k g' + (1 - k) g with k = 0.9/(1 - 0.9)."""

    def descent(self, g: Tensor, p: Tensor) -> Tensor:
        """Return u."""
        k = 0.9 / (1 - 0.9)
        return k * p + (1 - k) * g


class LookSAM(Plain):
    """SAM on every fifth step; between them its component orthogonal to g serves again."""

    alpha: ClassVar[float] = 0.7

    def descent(self, g: Tensor, p: Tensor) -> Tensor:
        """Return g', and keep its component orthogonal to g."""
        self.m = p - (g @ p / (g @ g)) * g
        return p

    def update(self, w: Tensor, v: Tensor, gradient: Callable[[Tensor], Tensor]) -> Tensor:
        """Return u."""
        if self.steps % LOOK_EVERY == 0:
            return super().update(w, v, gradient)
        self.steps += 1
        g = gradient(w)
        assert self.m is not None
        size: Tensor = g.norm() / self.m.norm()
        return g + self.alpha * size * self.m


FORMULAS: dict[str, type[Plain]] = {
    "SAM": Plain,
    "ASAM": ASAM,
    "FisherSAM": FisherSAM,
    "F-SAM": FriendlySAM,
    "F-SAM authors": Authors,
    "F-SAM debiased": Debiased,
    "F-SAM projection": Projection,
    "F-ASAM": FriendlyASAM,
    "F-FisherSAM": FriendlyFisherSAM,
    "VaSSO": VaSSO,
    "MSAM": MSAM,
    "GSAM": GSAM,
    "WSAM": WSAM,
    "LookSAM": LookSAM,
}
"""The formula of each recipe, by its name in `bench.recipes`."""


def trajectory(method: Plain, steps: int) -> Tensor:
    """Return the weights, as one vector, after training with a formula."""
    w = torch.cat([p.detach().flatten() for p in network(CPU, torch.float64).parameters()])
    v = torch.zeros_like(w)
    for number in range(steps):
        u = method.update(w, v, _gradient_on(number))
        v = MOMENTUM * v + u + DECAY * w
        w = w - LR * v
    return w


def _gradient_on(number: int) -> Callable[[Tensor], Tensor]:
    x, y = batch(number, CPU, torch.float64)

    def gradient(w: Tensor) -> Tensor:
        w = w.detach().requires_grad_()
        sizes = [HIDDEN * INPUTS, HIDDEN, CLASSES * HIDDEN, CLASSES]
        first, offset, second, last = torch.split(w, sizes)
        hidden = torch.tanh(F.linear(x, first.view(HIDDEN, INPUTS), offset))
        loss = F.cross_entropy(F.linear(hidden, second.view(CLASSES, HIDDEN), last), y)
        return torch.autograd.grad(loss, w)[0]

    return gradient
