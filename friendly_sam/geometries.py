"""Geometries: the shape of the ball in which the weights are perturbed.

The perturbation maximises <d, ε> over ||T⁻¹ ε|| ≤ ρ (paper, appendix A4). T is diagonal; only T²
is ever needed, since ε = ρ T² d / ||T d|| and ||T d||² = <d, T² d>.

    Euclidean         T = 1                    SAM
    ParameterScaled   T = |w| + η              ASAM
    DiagonalFisher    T² = 1 / (1 + η g²)      FisherSAM
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from friendly_sam.blocks import Block
from friendly_sam.checks import check_number


class Geometry(ABC):
    """The shape of the ball. Holds settings, no tensors."""

    only: Callable[[str], bool] | None = None
    """Which parameters the shape applies to, by name; T = 1 for the others."""

    @abstractmethod
    def squared(self, block: Block) -> list[Tensor] | None:
        """T² for the parameters of `block` from their weights and gradients; None for T = 1."""

    def squared_of(self, weight: Tensor, gradient: Tensor) -> Tensor | None:
        """T² for tensors of one parameter: what the kernels of `friendly_sam.fused` compile.

        It may read the geometry's own settings where they are numbers, strings, dtypes or
        functions. What else it reads is compiled in and may not change.
        """
        raise NotImplementedError(f"{type(self).__name__} has no fused form")


@dataclass(frozen=True)
class Euclidean(Geometry):
    """SAM's ball: T = 1.

    Example:
        >>> from friendly_sam import Euclidean
        >>> Euclidean()
        Euclidean()
    """

    def squared(self, block: Block) -> list[Tensor] | None:
        """T = 1."""
        return None

    def squared_of(self, weight: Tensor, gradient: Tensor) -> Tensor | None:
        """T = 1."""
        return None


@dataclass(frozen=True)
class ParameterScaled(Geometry):
    """ASAM's ball (Kwon et al., 2021), invariant to rescaling of the weights: T = |w| + η.

    Args:
        eta: η ≥ 0, keeps weights at zero movable (0.01, SamsungLabs/ASAM). With η = 0 and all
            parameters scaled this is the form of the F-SAM paper, whose ρ is 2 and 4.
        only: a predicate on parameter names; T = 1 where it is false. SamsungLabs' code scales
            `only=lambda name: "weight" in name`. Names come from the optimizer's `model=`, or
            from a base optimizer that was given `named_parameters()`.

    Example:
        >>> from friendly_sam import ParameterScaled
        >>> ParameterScaled(eta=0.0)
        ParameterScaled(eta=0.0, only=None)
    """

    eta: float = 0.01
    only: Callable[[str], bool] | None = None

    def __post_init__(self) -> None:
        check_number("eta", self.eta, at_least=0)
        if self.only is not None and not callable(self.only):
            raise TypeError(
                f"only must be a predicate on parameter names or None, not {self.only!r}"
            )

    def squared(self, block: Block) -> list[Tensor] | None:
        """(|w| + η)²."""
        if not block.scaled:
            return None
        scale = list(torch._foreach_abs(block.weights))
        torch._foreach_add_(scale, self.eta)
        torch._foreach_mul_(scale, scale)
        return scale

    def squared_of(self, weight: Tensor, gradient: Tensor) -> Tensor | None:
        """(|w| + η)²."""
        return (weight.abs() + self.eta).square()


@dataclass(frozen=True)
class DiagonalFisher(Geometry):
    """FisherSAM's ball (Kim et al., 2022), by the diagonal Fisher information: T² = 1/(1 + η g²).

    g is the gradient that climbs, before a direction takes anything away from it. FisherSAM has
    no public official code; this is its formula as the F-SAM paper's appendix A4 uses it.

    Args:
        eta: η ≥ 0 (1.0; the F-SAM paper names ρ = 0.1 and leaves η to Kim et al.).

    Example:
        >>> from friendly_sam import DiagonalFisher
        >>> DiagonalFisher()
        DiagonalFisher(eta=1.0)
    """

    eta: float = 1.0

    def __post_init__(self) -> None:
        check_number("eta", self.eta, at_least=0)

    def squared(self, block: Block) -> list[Tensor] | None:
        """1 / (1 + η g²)."""
        scale = list(torch._foreach_mul(block.gradients, block.gradients))
        torch._foreach_mul_(scale, self.eta)
        torch._foreach_add_(scale, 1.0)
        torch._foreach_reciprocal_(scale)
        return scale

    def squared_of(self, weight: Tensor, gradient: Tensor) -> Tensor | None:
        """1 / (1 + η g²)."""
        return (1 + self.eta * gradient.square()).reciprocal()
