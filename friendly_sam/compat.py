"""The interfaces of davda54/sam and of the authors' code, so that scripts change one import.

    from friendly_sam.compat import SAM, FriendlySAM

A training loop calls `first_step(zero_grad=True)` after its first backward pass and
`second_step(zero_grad=True)` after its second. Between the two calls the weights are w + ε, and an
exception there cannot be caught by the library: prefer `step(closure)` or `perturbed()`, which
come back to w whatever happens. What is better here than there: `state_dict` is complete, weights
come back bit for bit in the same storage, and parameters without a second gradient come back too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.optim import Optimizer

from friendly_sam.directions import BatchNoise, Direction, Gradient
from friendly_sam.geometries import Euclidean, ParameterScaled
from friendly_sam.optimizer import SharpnessAware
from friendly_sam.perturbation import uninterrupted

__all__ = ["SAM", "FriendlySAM"]


class _TwoStep(SharpnessAware):
    """`first_step`, `second_step` and a `step` that calls its closure once."""

    def __init__(
        self,
        params: Iterable[Any],
        base_optimizer: Callable[..., Optimizer],
        rho: float,
        direction: Direction,
        adaptive: bool,
        **kwargs: Any,
    ) -> None:
        if not callable(base_optimizer):
            raise TypeError(
                f"base_optimizer must be an optimizer class such as torch.optim.SGD, not "
                f"{base_optimizer!r}"
            )
        super().__init__(
            base_optimizer(params, **kwargs),
            rho,
            direction=direction,
            geometry=ParameterScaled(eta=0.0) if adaptive else Euclidean(),
        )

    @property
    def base_optimizer(self) -> Optimizer:
        """The base optimizer."""
        return self.base

    @torch.no_grad()
    def first_step(self, zero_grad: bool = False) -> None:
        """Move the weights to w + ε, from the gradients of the first backward pass."""
        if self._inside:
            raise RuntimeError("first_step() was called twice without second_step()")
        self._share()
        # The ascent uses the gradients up; without zero_grad the loops of old still expect them.
        kept = [] if zero_grad else [(p, p.grad.clone()) for p in self._with_gradient()]
        self._inside = True
        try:
            self._ascend()
            for parameter, gradient in kept:
                parameter.grad = gradient
        except BaseException:
            self._come_back()
            raise

    @torch.no_grad()
    def second_step(self, zero_grad: bool = False) -> None:
        """Come back to w and step with the gradients of the second backward pass."""
        if not self._inside:
            raise RuntimeError("second_step() was called without first_step() before it")
        with uninterrupted():
            self._come_back()
        self._ascended = True
        super().step()
        self._opt_called = True  # a scheduler looks whether `step` was called, and it was not
        if zero_grad:
            self.zero_grad()

    @torch.no_grad()
    def step(  # type: ignore[override]
        self, closure: Callable[[], Any] | None = None
    ) -> None:
        """Ascend from the gradients that are there, call `closure` once, and step."""
        if closure is None:
            raise TypeError("closure must be a function that does a full forward-backward pass")
        self._second_pass(torch.enable_grad()(closure), freeze_statistics=False)
        super().step()

    def _with_gradient(self) -> list[Any]:
        return [p for p in self._parameters() if p.grad is not None]


class SAM(_TwoStep):
    """SAM as davda54/sam has it; `adaptive` is ASAM with T = |w| on all parameters.

    Example:
        >>> import torch
        >>> from friendly_sam.compat import SAM
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.1, momentum=0.9)
        >>> x = torch.randn(8, 4)
        >>> model(x).square().mean().backward()
        >>> optimizer.first_step(zero_grad=True)
        >>> model(x).square().mean().backward()
        >>> optimizer.second_step(zero_grad=True)
    """

    def __init__(
        self,
        params: Iterable[Any],
        base_optimizer: Callable[..., Optimizer],
        rho: float = 0.05,
        adaptive: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(params, base_optimizer, rho, Gradient(), adaptive, **kwargs)


class FriendlySAM(_TwoStep):
    """F-SAM as the authors' code has it: σ = `sigma`, λ = `lmbda`, variant "authors".

    Example:
        >>> import torch
        >>> from friendly_sam.compat import FriendlySAM
        >>> model = torch.nn.Linear(4, 2)
        >>> optimizer = FriendlySAM(
        ...     model.parameters(), torch.optim.SGD, rho=0.1, sigma=1, lmbda=0.9, lr=0.05)
        >>> def closure():
        ...     model(torch.randn(8, 4)).square().mean().backward()
        >>> closure()
        >>> optimizer.step(closure)
    """

    def __init__(
        self,
        params: Iterable[Any],
        base_optimizer: Callable[..., Optimizer],
        rho: float = 0.05,
        sigma: float = 1,
        lmbda: float = 0.9,
        adaptive: bool = False,
        **kwargs: Any,
    ) -> None:
        direction = BatchNoise(sigma, lmbda, "authors")
        super().__init__(params, base_optimizer, rho, direction, adaptive, **kwargs)
