"""Descents: what the base optimizer gets, from g at w and g' at w + ε.

    PerturbedGradient   u = g'                                     SAM
    SurrogateGap        u = g' - α (g - (<g,g'>/||g'||²) g')       GSAM
    Weighted            u = k g' + (1 - k) g, k = γ/(1 - γ)        WSAM, gradient-norm penalty
    Reused              u = g', and on the steps between ascents   LookSAM
                        u = g + α (||g||/||g_v||) g_v

All but the first need g after the second pass: one more copy of the parameters, kept between the
passes. A formula works element by element on `Tensors` and overwrites g'.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from friendly_sam._machinery.checks import check_number
from friendly_sam._machinery.tensors import Tensors

Products = tuple[Tensor, Tensor, Tensor]
"""Inner products over all parameters together; see the formulas."""


class Descent(ABC):
    """What the base optimizer gets. Holds settings, no tensors."""

    needs_gradient: ClassVar[bool] = False
    """Whether it needs g after the second pass."""
    keeps_component: ClassVar[bool] = False
    """Whether the optimizer keeps a vector v for it from step to step."""
    needs_products: ClassVar[bool] = True
    """Whether its formula needs inner products over all parameters."""

    @abstractmethod
    def __call__(self, p: Tensors, g: Tensors, v: Tensors, products: Products) -> None:
        """Overwrite p = g' with u, and v with what later steps need.

        `products` are <g,g>, <g,g'> and <g',g'>.
        """

    def skipped(self, g: Tensors, v: Tensors, products: Products) -> None:  # noqa: B027
        """Overwrite g with u on a step without ascent; `products`: <g,g>, <g,v>, <v,v>."""


@dataclass(frozen=True)
class PerturbedGradient(Descent):
    """SAM's descent, the gradient at the perturbed weights: u = g' (Foret et al., 2021).

    Example:
        >>> from friendly_sam import PerturbedGradient
        >>> PerturbedGradient()
        PerturbedGradient()
    """

    def __call__(self, p: Tensors, g: Tensors, v: Tensors, products: Products) -> None:
        """u = g'."""


@dataclass(frozen=True)
class SurrogateGap(Descent):
    """GSAM's descent (Zhuang et al., 2022): the surrogate gap goes down too.

        u = g' - α (g - (<g,g'>/||g'||²) g')

    Args:
        alpha: α ≥ 0 (0.4, the example of its code). 0 is SAM.

    Example:
        >>> from friendly_sam import SurrogateGap
        >>> SurrogateGap()
        SurrogateGap(alpha=0.4)
    """

    alpha: float = 0.4

    needs_gradient: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha, at_least=0)

    def __call__(self, p: Tensors, g: Tensors, v: Tensors, products: Products) -> None:
        """u = g' - α (g - c g'), c = <g,g'>/||g'||²."""
        _, gp, pp = products
        p.mul_(1 + self.alpha * _ratio(gp, pp)).sub_(g, alpha=self.alpha)


@dataclass(frozen=True)
class Weighted(Descent):
    """WSAM's descent, the coupled form (Yue et al., 2023): sharpness with a weight of its own.

        u = k g' + (1 - k) g,   k = γ/(1 - γ)

    With k < 1 it penalises the norm of the gradient (Zhao et al., 2022).

    Args:
        gamma: γ in [0, 1) (0.9, atorch). 1/2 is SAM, 0 the base optimizer.

    Example:
        >>> from friendly_sam import Weighted
        >>> Weighted(gamma=0.5)
        Weighted(gamma=0.5)
    """

    gamma: float = 0.9

    needs_gradient: ClassVar[bool] = True
    needs_products: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_number("gamma", self.gamma, at_least=0, below=1)

    def __call__(self, p: Tensors, g: Tensors, v: Tensors, products: Products) -> None:
        """u = g' + (1 - k)(g - g')."""
        k = self.gamma / (1 - self.gamma)
        p.lerp_(g, 1 - k)


@dataclass(frozen=True)
class Reused(Descent):
    """LookSAM's descent (Liu et al., 2022): the last ascent serves the steps between.

        with ascent:     u = g',   g_v = g' - (<g,g'>/||g||²) g
        without ascent:  u = g + α (||g||/||g_v||) g_v

    Args:
        alpha: α ≥ 0 (0.7, the value of its experiments).

    Example:
        >>> from friendly_sam import Reused
        >>> Reused()
        Reused(alpha=0.7)
    """

    alpha: float = 0.7

    needs_gradient: ClassVar[bool] = True
    keeps_component: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha, at_least=0)

    def __call__(self, p: Tensors, g: Tensors, v: Tensors, products: Products) -> None:
        """u = g', g_v = g' - (<g,g'>/||g||²) g."""
        gg, gp, _ = products
        v.lerp_(p, 1.0).sub_(g, alpha=_ratio(gp, gg))

    def skipped(self, g: Tensors, v: Tensors, products: Products) -> None:
        """u = g + α (||g||/||g_v||) g_v."""
        gg, _, vv = products
        g.add_(v, alpha=self.alpha * _ratio(gg, vv).sqrt())


def _ratio(above: Tensor, below: Tensor) -> Tensor:
    return torch.where(below > 0, above / below, 0.0)
