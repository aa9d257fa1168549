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
from torch import Tensor
from torch.optim import Optimizer

from friendly_sam._machinery.hooks import own_hooks
from friendly_sam._machinery.memory import EMA
from friendly_sam.directions import BatchNoise, Direction, Gradient
from friendly_sam.geometries import ParameterScaled
from friendly_sam.optimizer import SharpnessAware

__all__ = ["SAM", "FriendlySAM"]

THEIRS = {"old_p": None, "momentum": EMA}
"""What their code keeps for a parameter: w, and the EMA of the authors'."""


class _TwoStep(SharpnessAware):
    """`first_step`, `second_step` and a `step` that calls its closure once.

    As in davda54/sam, a group has its own `rho` and `adaptive`, and one with radius 0 is counted
    in the norm.
    """

    counts_radius_0 = True

    def __new__(cls, *arguments: Any, **settings: Any) -> Any:
        return object.__new__(cls)

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
        geometry = ParameterScaled(eta=0.0)
        base = base_optimizer(params, **kwargs)
        super().__init__(base, rho, direction=direction, geometry=geometry)
        self.defaults["adaptive"] = adaptive
        for group in self.param_groups:
            group.setdefault("adaptive", adaptive)

    @property
    def base_optimizer(self) -> Optimizer:
        """The base optimizer."""
        return self.base

    def scales(self, group: dict[str, Any], parameter: Tensor) -> bool:
        """Whether the group is adaptive."""
        return bool(group.get("adaptive", self.defaults["adaptive"]))

    @torch.no_grad()
    def first_step(self, zero_grad: bool = False) -> None:
        """Move the weights to w + ε, from the gradients of the first backward pass."""
        if self._perturbation is not None and self._perturbation.active:
            raise RuntimeError("first_step() was called twice without second_step()")
        # The ascent uses the gradients up; without zero_grad the loops of old still expect them.
        parameters = self.groups.parameters()
        kept = [(p, p.grad.clone()) for p in parameters if not zero_grad and p.grad is not None]
        perturbation = self._perturbed(freeze_statistics=False)
        try:
            perturbation.begin()
            for parameter, gradient in kept:
                parameter.grad = gradient
        except BaseException:
            perturbation.give_up()
            raise

    @torch.no_grad()
    def second_step(self, zero_grad: bool = False) -> None:
        """Come back to w and step with the gradients of the second backward pass."""
        if self._perturbation is None or not self._perturbation.active:
            raise RuntimeError("second_step() was called without first_step() before it")
        self._perturbation.end()
        super().step()
        self._opt_called = True  # a scheduler looks whether `step` was called, and it was not
        if zero_grad:
            self.zero_grad()

    @own_hooks
    @torch.no_grad()
    def step(  # type: ignore[override]
        self, closure: Callable[[], Any] | None = None
    ) -> None:
        """Ascend from the gradients that are there, call `closure` once, and step."""
        if closure is None:
            raise TypeError("closure must be a function that does a full forward-backward pass")
        self.refuse_inside("step()")
        self._perturbed(freeze_statistics=False).run(torch.enable_grad()(closure))
        SharpnessAware.step.__wrapped__(self)  # type: ignore[attr-defined] # without the hooks

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load what `state_dict` gave here, or in their code, which has no base state."""
        if isinstance(state_dict, dict) and isinstance(state_dict.get("state"), dict):
            states = {
                key: _translated(entry) if isinstance(entry, dict) and "old_p" in entry else entry
                for key, entry in state_dict["state"].items()
            }
            state_dict = {**state_dict, "state": states}
        super().load_state_dict(state_dict)


def _translated(entry: dict[str, Any]) -> dict[str, Any]:
    names = {name: THEIRS.get(name, name) for name in entry}
    return {new: entry[old] for old, new in names.items() if new is not None}


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
