"""Geometries: the neighbourhood in which the weights are perturbed.

The perturbation maximises <d, ε> under the norm constraint ||T⁻¹ ε|| ≤ ρ (paper, appendix A4):
ε = ρ T² d / ||T d||, with a diagonal T.

    Euclidean         T = 1                    SAM
    ParameterScaled   T = |w| + η              ASAM
    DiagonalFisher    T² = 1 / (1 + η g²)      FisherSAM

Where groups have unequal radii, ε_i = ρ_i T² d_i / ||T d|| with the norm over all groups: the
convention of davda54/sam. ε then lies on the ellipsoid ∑ ||T⁻¹ ε_i||²/ρ_i² = 1 but does not
maximise <d, ε> over it, and a radius that tends to 0 still counts in the norm, which a group with
radius 0 does not.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from friendly_sam._machinery.checks import check_number
from friendly_sam._machinery.tensors import Tensors


class Geometry(ABC):
    """The neighbourhood. Holds settings, no tensors."""

    only: Callable[[str], bool] | None = None
    """Which parameters it applies to, by name; T = 1 for the others."""
    of_weights: ClassVar[bool] = False
    """Whether T depends on the weights alone."""

    @abstractmethod
    def __call__(self, w: Tensors, g: Tensors) -> Tensors | None:
        """Return T from weights and gradients, element by element; None for T = 1.

        `w` and `g` must stay as they are. In float16 they come as float32.
        """


@dataclass(frozen=True)
class Euclidean(Geometry):
    """SAM's neighbourhood: T = 1.

    Example:
        >>> from friendly_sam import Euclidean
        >>> Euclidean()
        Euclidean()
    """

    def __call__(self, w: Tensors, g: Tensors) -> None:
        """T = 1."""


@dataclass(frozen=True)
class ParameterScaled(Geometry):
    """ASAM's neighbourhood (Kwon et al., 2021), invariant to rescaled weights: T = |w| + η.

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

    of_weights: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_number("eta", self.eta, at_least=0)
        if self.only is not None and not callable(self.only):
            raise TypeError(
                f"only must be a predicate on parameter names or None, not {self.only!r}"
            )

    def __call__(self, w: Tensors, g: Tensors) -> Tensors:
        """T = |w| + η."""
        return w.abs().add_(self.eta)


@dataclass(frozen=True)
class DiagonalFisher(Geometry):
    """FisherSAM's neighbourhood (Kim et al., 2022), by the diagonal Fisher information.

        T² = 1 / (1 + η g²)

    g is the gradient of the ascent pass, before a direction takes anything away from it. FisherSAM
    has no public official code; this is its formula as the F-SAM paper's appendix A4 uses it.

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

    def __call__(self, w: Tensors, g: Tensors) -> Tensors:
        """T = (1 + η g²)^(-1/2), as c (c² + η (c g)²)^(-1/2), whose square does not overflow."""
        c = 1e-18
        return g.mul(c).square_().mul_(self.eta).add_(c * c).rsqrt_().mul_(c)
