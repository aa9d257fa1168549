"""The methods as slow, obvious loops over parameters: what the fast path is tested against."""

import torch


class Reference:
    """One ascent at a time: `perturbation(weights, gradients)` gives ε, a list of tensors."""

    def __init__(
        self, rho, *, sigma=None, decay=0.9, variant="paper", geometry="euclidean", eta=0.0
    ):
        self.rho, self.sigma, self.decay, self.variant = rho, sigma, decay, variant
        self.geometry, self.eta = geometry, eta
        self.m, self.t = None, 0

    def perturbation(self, weights, gradients):
        d = self.direction([g.clone() for g in gradients])
        t = [self.scale(w, g) for w, g in zip(weights, gradients)]
        norm = sum((t * d).square().sum() for t, d in zip(t, d)).sqrt()
        return [self.rho * t**2 * d / norm for t, d in zip(t, d)]

    def scale(self, w, g):
        if self.geometry == "parameter":
            return w.abs() + self.eta
        if self.geometry == "fisher":
            return (1 / (1 + self.eta * g**2)).sqrt()
        return torch.ones_like(w)

    def direction(self, gradients):
        if self.sigma is None:
            return gradients
        self.t += 1
        previous = self.m
        if self.m is None and self.variant == "authors":
            self.m = gradients
            return gradients
        old = previous or [torch.zeros_like(g) for g in gradients]
        self.m = [self.decay * m + (1 - self.decay) * g for m, g in zip(old, gradients)]
        average = previous if self.variant == "authors" else self.m
        if self.variant == "debiased":
            if self.t == 1:
                return gradients
            average = [m / (1 - self.decay**self.t) for m in average]
        sigma = self.sigma
        if sigma == "projection":
            along = sum((g * m).sum() for g, m in zip(gradients, average))
            sigma = along / sum(m.square().sum() for m in average)
        return [g - sigma * m for g, m in zip(gradients, average)]


def residual(gradients, full):
    """g less its projection on the full gradient."""
    along = sum((g * f).sum() for g, f in zip(gradients, full))
    squared = sum(f.square().sum() for f in full)
    return [g - along / squared * f for g, f in zip(gradients, full)]
