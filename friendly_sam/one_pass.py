"""Directions without an ascent pass: the closure is called once, at w + ε.

Momentum     d = -v                       MSAM, v the base's momentum
Stale        d of the previous gradient   AsyncSAM, one-pass F-SAM
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from friendly_sam._machinery.checks import check_component
from friendly_sam._machinery.tensors import Scalar, Tensors
from friendly_sam.directions import Direction, Products


@dataclass(frozen=True)
class Momentum(Direction):
    """MSAM's direction: against the base's momentum (Becker et al., 2024). No ascent pass.

        d = -v,   v the momentum buffer of SGD, `exp_avg` of Adam and its relatives

    The closure is called once, at w + ε. There is no perturbation while there is no v. MSAM's own
    code also takes weight decay at w + ε; here it is the base's, at w.

    Example:
        >>> from friendly_sam import Momentum
        >>> Momentum()
        Momentum()
    """

    starts_from: ClassVar[Literal["gradient", "momentum", "previous"]] = "momentum"
    overwrites: ClassVar[bool] = False
    cancels: ClassVar[bool] = False

    def __call__(self, g: Tensors, m: Tensors, t: Scalar, products: Products | None) -> Tensors:
        """d = -v; the optimizer hands over -v as g."""
        return g


@dataclass(frozen=True)
class Stale(Direction):
    """Another direction, of the gradient of the previous step. No ascent pass.

    The gradient is the one at w + ε that the previous step descended by. With `Gradient()` inside
    it is AsyncSAM's direction; with `BatchNoise()` one-pass F-SAM. The closure is called once, at
    w + ε; the first step has no perturbation. The previous gradient is one more copy of the
    parameters.

    Args:
        inner: the direction, which must be one with an ascent pass.

    Example:
        >>> from friendly_sam import Gradient, Stale
        >>> Stale(Gradient())
        Stale(inner=Gradient())
    """

    inner: Direction

    starts_from: ClassVar[Literal["gradient", "momentum", "previous"]] = "previous"

    def __post_init__(self) -> None:
        check_component("inner", self.inner, Direction)
        if self.inner.starts_from != "gradient" or self.inner.reference is not None:
            raise ValueError(
                f"inner must be a direction of the gradient and its EMA, not {self.inner!r}"
            )
        for name in ("keeps_ema", "overwrites", "cancels", "dtype"):
            object.__setattr__(self, name, getattr(self.inner, name))

    @property
    def counts_updates(self) -> bool:
        """As the inner direction."""
        return self.inner.counts_updates

    @property
    def needs_products(self) -> bool:
        """As the inner direction."""
        return self.inner.needs_products

    @property
    def needs_scratch(self) -> bool:
        """As the inner direction."""
        return self.inner.needs_scratch

    def update(self, m: Tensors, g: Tensors, t: Scalar) -> None:
        """As the inner direction."""
        self.inner.update(m, g, t)

    def __call__(self, g: Tensors, m: Tensors, t: Scalar, products: Products | None) -> Tensors:
        """d of the previous gradient."""
        return self.inner(g, m, t, products)
