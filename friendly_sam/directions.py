"""Directions: which way the weights are perturbed.

A direction makes d of the gradient g and of what is remembered of earlier ones (the paper's
equations 8 to 14):

    Gradient     d = g                        SAM
    BatchNoise   d = g - σ m                  F-SAM, m the EMA of past gradients
    Average      d = m                        VaSSO
    Residual     d = g - (<g,G>/||G||²) G     SAM-noise, G the gradient that a closure gives

Two more, without an ascent pass, are in `friendly_sam.one_pass`.
A direction holds settings; tensors are the optimizer's. Its formula works element by element on
`Tensors`, lists of tensors with the methods of one, and may overwrite g.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from friendly_sam._machinery.checks import check_number
from friendly_sam._machinery.tensors import Scalar, Tensors

Variant = Literal["paper", "authors", "debiased"]
Products = tuple[Tensor, Tensor, Tensor]
"""<g,g>, <g,m> and <m,m> over all parameters together, m as it is before the step."""


class Direction(ABC):
    """Which way the weights are perturbed. Override `__call__` and say what it needs."""

    starts_from: ClassVar[Literal["gradient", "momentum", "previous"]] = "gradient"
    """What g is: the gradient of an ascent pass or, without one, the base's momentum buffer or
    the gradient of the previous step."""
    keeps_ema: ClassVar[bool] = False
    """Whether the optimizer keeps an EMA m for it."""
    overwrites: ClassVar[bool] = True
    """Whether the formula overwrites g."""
    cancels: ClassVar[bool] = True
    """Whether d is a difference, of which only rounding may be left; it then counts as zero."""
    reference: Callable[[], Any] | None = None
    """A closure whose gradient takes the place of m."""
    dtype: torch.dtype | None = None
    """The dtype of m; by default the parameter's."""

    @property
    def counts_updates(self) -> bool:
        """Whether it matters how many gradients m has taken in."""
        return False

    @property
    def needs_products(self) -> bool:
        """Whether the formula needs <g,g>, <g,m> and <m,m> over all parameters."""
        return False

    @property
    def needs_scratch(self) -> bool:
        """Whether the formula takes memory as large as g."""
        return False

    def update(self, m: Tensors, g: Tensors, t: Scalar) -> None:
        """Update the EMA, which has taken in t gradients; all that happens on a skipped step."""
        raise NotImplementedError(f"{type(self).__name__} does not say how its EMA is updated")

    @abstractmethod
    def __call__(self, g: Tensors, m: Tensors, t: Scalar, products: Products | None) -> Tensors:
        """Update the EMA and return d."""


@dataclass(frozen=True)
class Gradient(Direction):
    """SAM's direction, the gradient itself: d = g (Foret et al., 2021; the paper's equation 3).

    Example:
        >>> from friendly_sam import Gradient
        >>> Gradient()
        Gradient()
    """

    overwrites: ClassVar[bool] = False
    cancels: ClassVar[bool] = False

    def __call__(self, g: Tensors, m: Tensors, t: Scalar, products: Products | None) -> Tensors:
        """d = g."""
        return g


@dataclass(frozen=True)
class BatchNoise(Direction):
    """F-SAM's direction, the batch-specific noise: the gradient less its EMA.

        m ← λ m + (1 - λ) g
        d = g - σ m

    Symbols (the paper's algorithm 1): g the minibatch gradient, m the EMA that stands for the
    full gradient, λ = `decay`, σ = `sigma`.

    Args:
        sigma: how much of m is taken away (1.0, the paper's section 6.1). 0 is SAM.
            `"projection"` takes away the projection of g on m, d = g - (<g,m>/||m||²) m: the
            paper's σ_t = cos(m_t, g_t) before it is set constant, with the norms that the text
            leaves out.
        decay: λ in [0, 1) (0.9; the paper tunes it in {0.6, 0.9, 0.95}).
        variant: `"paper"` is algorithm 1: m starts at 0 and d uses the new m. `"authors"` is the
            authors' code: m starts as the first gradient, nothing is taken away on that step, and
            d uses the previous m. At σ = 1 the two directions are parallel but for the start. In
            `"debiased"` m is divided by 1 - λ^t, the weights of theorem 1's proof; d = g on the
            first step, where g - m would be rounding noise.
        dtype: the dtype that m is kept in; by default the parameter's own.

    Example:
        >>> from friendly_sam import BatchNoise
        >>> BatchNoise(decay=0.6)
        BatchNoise(sigma=1.0, decay=0.6, variant='paper', dtype=None)
    """

    sigma: float | Literal["projection"] = 1.0
    decay: float = 0.9
    variant: Variant = "paper"
    dtype: torch.dtype | None = None

    keeps_ema: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.sigma != "projection":
            if isinstance(self.sigma, str):
                raise ValueError(f'sigma must be a number or "projection", not {self.sigma!r}')
            check_number("sigma", self.sigma)
        check_number("decay", self.decay, at_least=0, below=1)
        if self.variant not in ("paper", "authors", "debiased"):
            raise ValueError(
                f'variant must be "paper", "authors" or "debiased", not {self.variant!r}'
            )
        if self.dtype is not None and not (
            isinstance(self.dtype, torch.dtype) and self.dtype.is_floating_point
        ):
            raise TypeError(
                f"dtype must be a floating-point torch.dtype or None, not {self.dtype!r}"
            )

    @property
    def counts_updates(self) -> bool:
        """The first step is special but in algorithm 1, and debiasing needs the count."""
        return self.variant != "paper"

    @property
    def needs_products(self) -> bool:
        """For the projection."""
        return self.sigma == "projection"

    @property
    def needs_scratch(self) -> bool:
        """For the previous m."""
        return self.variant == "authors"

    def update(self, m: Tensors, g: Tensors, t: Scalar) -> None:
        """m ← λ m + (1 - λ) g; the authors' m starts as the first gradient."""
        weight = 1 - self.decay
        m.lerp_(g, _where(t == 0, 1.0, weight) if self.variant == "authors" else weight)

    def __call__(self, g: Tensors, m: Tensors, t: Scalar, products: Products | None) -> Tensors:
        """m ← λ m + (1 - λ) g, d = g - σ m."""
        used = m.clone() if self.variant == "authors" else m
        self.update(m, g, t)
        return g.sub_(used, alpha=self._sigma(t, products))

    def _sigma(self, t: Scalar, products: Products | None) -> Scalar:
        if products is None:
            sigma: Scalar = float(self.sigma)
            if self.variant == "debiased":
                sigma = sigma / (1 - self.decay ** (t + 1))
        else:
            gg, gm, mm = products
            if self.variant != "authors":  # those of the new m
                a, b = self.decay, 1 - self.decay
                gm, mm = a * gm + b * gg, a * a * mm + 2 * a * b * gm + b * b * gg
            sigma = torch.where(mm > 0, gm / mm, 0.0)
        return _where(t == 0, 0.0, sigma) if self.variant == "debiased" else sigma


@dataclass(frozen=True)
class Average(Direction):
    """VaSSO's direction, the EMA itself (Li and Giannakis, 2023): variance suppressed.

        m ← (1 - θ) m + θ g,   m starts as the first gradient
        d = m

    Args:
        theta: θ in (0, 1] (0.4, the value of its experiments). 1 is SAM.

    Example:
        >>> from friendly_sam import Average
        >>> Average()
        Average(theta=0.4)
    """

    theta: float = 0.4

    keeps_ema: ClassVar[bool] = True
    overwrites: ClassVar[bool] = False
    cancels: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_number("theta", self.theta, above=0, at_most=1)

    @property
    def counts_updates(self) -> bool:
        """The first gradient is special."""
        return True

    def update(self, m: Tensors, g: Tensors, t: Scalar) -> None:
        """m ← (1 - θ) m + θ g."""
        m.lerp_(g, _where(t == 0, 1.0, self.theta))

    def __call__(self, g: Tensors, m: Tensors, t: Scalar, products: Products | None) -> Tensors:
        """d = m, the new one."""
        self.update(m, g, t)
        return m


@dataclass(frozen=True)
class Residual(Direction):
    """SAM-noise: the gradient less its projection on the gradient that `reference` gives.

        d = g - (<g,G> / ||G||²) G        (the paper's equation 8 and appendix A5)

    Args:
        reference: a closure (forward and backward, like that of `step`) that leaves G, usually
            the gradient over the whole training set, in the parameters' `.grad`.

    Example:
        >>> from friendly_sam import Residual
        >>> direction = Residual(lambda: full_loss().backward())
    """

    reference: Callable[[], Any]

    def __post_init__(self) -> None:
        if not callable(self.reference):
            raise TypeError(f"reference must be a callable, not {self.reference!r}")

    @property
    def needs_products(self) -> bool:
        """For the projection."""
        return True

    def __call__(self, g: Tensors, m: Tensors, t: Scalar, products: Products | None) -> Tensors:
        """d = g - (<g,G>/||G||²) G, with G in the place of m."""
        assert products is not None
        _, along, squared = products
        return g.sub_(m, alpha=torch.where(squared > 0, along / squared, 0.0))


def _where(condition: Any, yes: Scalar, no: Scalar) -> Scalar:
    """Choose by a number of Python, or on the device."""
    if isinstance(condition, Tensor):
        return torch.where(condition, yes, no)
    return yes if condition else no
