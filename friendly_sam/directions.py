"""Directions: which way to climb.

A direction turns the gradient g into d, the vector along which the weights are perturbed
(paper, equations 8 to 14). All of them are d = g - c r with some reference vector r:

    Gradient     d = g                      SAM
    BatchNoise   d = g - σ m                F-SAM, m a moving average of past gradients
    Residual     d = g - (<g,G>/||G||²) G   SAM-noise, G the gradient that a closure gives
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from friendly_sam.blocks import Block
from friendly_sam.checks import check_number

Variant = Literal["paper", "authors", "debiased"]
InnerProducts = Callable[[str, str], tuple[Tensor, Tensor]]
"""From the names of two lists of a block, <a, b> and <b, b> over all parameters."""


class Direction(ABC):
    """Which way to climb. Holds settings, no tensors: state is the optimizer's."""

    keeps_average: ClassVar[bool] = False
    """Whether the optimizer keeps a moving average of gradients for this direction."""

    @property
    def counts_updates(self) -> bool:
        """Whether it matters how many gradients an average has taken in."""
        return False

    reference: Callable[[], Any] | None = None
    """The closure whose gradient is this direction's reference vector."""

    def coefficient(self, blocks: Sequence[Block], inner: InnerProducts) -> float | Tensor:
        """The c of d = g - c r: a setting, or a scalar tensor from products over all blocks."""
        return 0.0

    @abstractmethod
    def turn_(self, block: Block, coefficient: float | Tensor) -> None:
        """Overwrite the gradients of `block` with d."""

    def constant(self, updates: int) -> float | None:
        """The c of d = g - c r where nothing but the count of updates matters, else None.

        With None the step goes without the kernels of `friendly_sam.fused`.
        """
        return None

    def turned(
        self, gradient: Tensor, average: Tensor | None, constant: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """d and the new average, for tensors of one parameter: what the fused kernels compile.

        It may read the direction's own settings where they are numbers, strings, dtypes or
        functions. What else it reads is compiled in and may not change.
        """
        raise NotImplementedError(f"{type(self).__name__} has no fused form")

    def take_in(self, block: Block) -> None:  # noqa: B027 (most directions have no average)
        """Let the moving averages of `block` take in its gradients."""

    def average_like(self, parameter: Tensor) -> Tensor:
        """A fresh moving average for `parameter`, as it is before the first gradient."""
        return torch.zeros_like(parameter, memory_format=torch.preserve_format)


@dataclass(frozen=True)
class Gradient(Direction):
    """SAM's direction, the gradient itself: d = g (Foret et al., 2021; the paper's equation 3).

    Example:
        >>> from friendly_sam import Gradient
        >>> Gradient()
        Gradient()
    """

    def turn_(self, block: Block, coefficient: float | Tensor) -> None:
        """d = g: nothing to do."""

    def constant(self, updates: int) -> float | None:
        """Nothing is taken away."""
        return 0.0

    def turned(
        self, gradient: Tensor, average: Tensor | None, constant: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """d = g."""
        return gradient, None


@dataclass(frozen=True)
class BatchNoise(Direction):
    """F-SAM's direction, the batch-specific noise: the gradient less its moving average.

        m ← λ m + (1 - λ) g
        d = g - σ m

    Symbols (the paper's algorithm 1): g the minibatch gradient, m the average that stands for the
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

    keeps_average: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.sigma != "projection":
            if isinstance(self.sigma, str):
                raise ValueError(f'sigma must be a number or "projection", not {self.sigma!r}')
            check_number("sigma", self.sigma)
        check_number("decay", self.decay)
        if not 0 <= self.decay < 1:
            raise ValueError(f"decay must be in [0, 1), not {self.decay!r}")
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

    def coefficient(self, blocks: Sequence[Block], inner: InnerProducts) -> float | Tensor:
        """σ, or <g,m>/||m||² for the projection."""
        if self.sigma != "projection":
            return float(self.sigma)
        if self.variant != "authors":
            for block in blocks:
                self.take_in(block)
        along, squared = inner("gradients", "averages")
        return torch.where(squared > 0, along / squared, torch.zeros_like(squared))

    def turn_(self, block: Block, coefficient: float | Tensor) -> None:
        """Take in g and overwrite it with d = g - σ m."""
        if self.variant == "authors":
            if block.updates > 0:
                offset = torch._foreach_mul(block.averages, coefficient)
            self.take_in(block)
            if block.updates > 0:
                torch._foreach_sub_(block.gradients, offset)
            return
        if self.sigma != "projection":
            self.take_in(block)
        if self.variant == "debiased":
            if block.updates == 0:
                return
            if isinstance(coefficient, float):
                coefficient /= 1 - self.decay ** (block.updates + 1)
        _subtract_(block.gradients, coefficient, block.averages)

    def constant(self, updates: int) -> float | None:
        """σ, after debiasing; None for the projection and for a first step that is special."""
        if self.sigma == "projection" or (updates == 0 and self.variant != "paper"):
            return None
        if self.variant == "debiased":
            return float(self.sigma) / (1 - self.decay ** (updates + 1))
        return float(self.sigma)

    def turned(
        self, gradient: Tensor, average: Tensor | None, constant: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """d = g - σ m, with the new m or, in the authors' code, the previous one."""
        assert average is not None
        old = average.to(gradient.dtype)
        new = torch.lerp(old, gradient, 1 - self.decay)
        return gradient - constant * (old if self.variant == "authors" else new), new

    def take_in(self, block: Block) -> None:
        """m ← λ m + (1 - λ) g; the authors' code starts with m = g."""
        averages, gradients = block.averages, block.gradients
        if self.variant == "authors" and block.updates == 0:
            torch._foreach_copy_(averages, gradients)
        elif averages[0].dtype == gradients[0].dtype:
            torch._foreach_lerp_(averages, gradients, 1 - self.decay)
        else:
            widened = [m.to(g.dtype) for m, g in zip(averages, gradients, strict=True)]
            torch._foreach_lerp_(widened, gradients, 1 - self.decay)
            torch._foreach_copy_(averages, widened)

    def average_like(self, parameter: Tensor) -> Tensor:
        """m = 0."""
        return torch.zeros_like(parameter, dtype=self.dtype, memory_format=torch.preserve_format)


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

    def coefficient(self, blocks: Sequence[Block], inner: InnerProducts) -> float | Tensor:
        """<g,G> / ||G||²."""
        along, squared = inner("gradients", "references")
        return torch.where(squared > 0, along / squared, torch.zeros_like(squared))

    def turn_(self, block: Block, coefficient: float | Tensor) -> None:
        """Overwrite g with its residual."""
        _subtract_(block.gradients, coefficient, block.references)


def _subtract_(gradients: list[Tensor], coefficient: float | Tensor, away: list[Tensor]) -> None:
    if isinstance(coefficient, float):
        torch._foreach_add_(gradients, away, alpha=-coefficient)
    else:
        torch._foreach_sub_(gradients, torch._foreach_mul(away, coefficient))
