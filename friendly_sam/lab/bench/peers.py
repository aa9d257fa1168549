"""The ascent and the restore of other code, and of this library, behind one face.

The algorithms of davda54/sam, SamsungLabs/ASAM and the authors' code (nblt/F-SAM) are written again
here as the straightforward loops over parameters that they are: a fresh copy of every weight, out-
of-place arithmetic, and `p.data` put back (SamsungLabs' subtracts ε). The others multiply by 1.0
where their adaptive mode is off, which is a pass over memory each time; `lean=True` leaves that
out. pytorch_optimizer comes as it is on PyPI, with `foreach=True`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from friendly_sam import ASAM, SAM, BatchNoise, Euclidean, FriendlySAM, SharpnessAware

RHO, SIGMA, DECAY = 0.05, 1.0, 0.9
MEASURED = ("SAM", "ASAM", "F-SAM")
OURS, OTHER = "this library", "pytorch_optimizer"


@dataclass(frozen=True)
class Contender:
    """Something that moves weights to w + ε from their gradients, and back."""

    ascend: Callable[[], Any]
    """Uses `.grad` up and leaves it None."""
    restore: Callable[[], Any]
    """Brings back w; gradients of the second pass are there."""


class PlainSAM:
    """SAM, parameter by parameter, as davda54/sam goes about it."""

    def __init__(
        self, parameters: Sequence[Parameter], rho: float = RHO, *, lean: bool = False
    ) -> None:
        self.parameters, self.rho, self.lean = parameters, rho, lean
        self.old: dict[Tensor, Tensor] = {}

    @torch.no_grad()
    def ascend(self) -> None:
        """w + ρ g / ||g||."""
        norms = [self._weighed(p.grad).norm() for p in self.parameters if p.grad is not None]
        scale = self.rho / (torch.stack(norms).norm() + 1e-12)
        for p in self.parameters:
            if p.grad is not None:
                self.old[p] = p.data.clone()
                p.add_(self._weighed(p.grad) * scale)
                p.grad = None

    @torch.no_grad()
    def restore(self) -> None:
        """Put the copies back in place of the weights."""
        for p in self.parameters:
            if p.grad is not None:
                p.data = self.old[p]

    def _weighed(self, gradient: Tensor) -> Tensor:
        return gradient if self.lean else 1.0 * gradient


class PlainFriendlySAM(PlainSAM):
    """F-SAM, parameter by parameter, as the authors' code goes about it."""

    def __init__(
        self,
        parameters: Sequence[Parameter],
        rho: float = RHO,
        sigma: float = SIGMA,
        decay: float = DECAY,
        *,
        lean: bool = False,
    ) -> None:
        super().__init__(parameters, rho, lean=lean)
        self.sigma, self.decay = sigma, decay
        self.m: dict[Tensor, Tensor] = {}

    @torch.no_grad()
    def ascend(self) -> None:
        """d = g - σ m with the m before; m starts as the first gradient."""
        for p in self.parameters:
            if p.grad is None:
                continue
            g = p.grad.clone()
            if p in self.m:
                p.grad -= self.m[p] * self.sigma
                self.m[p] = self.m[p] * self.decay + g * (1 - self.decay)
            else:
                self.m[p] = g
        super().ascend()


class PlainASAM(PlainSAM):
    """ASAM, parameter by parameter, as SamsungLabs/ASAM goes about it: ε is taken away again."""

    eta = 0.01

    @torch.no_grad()
    def ascend(self) -> None:
        """w + ρ T² g / ||T g||, T = |w| + η; the memory of T becomes that of ε."""
        norms = []
        for p in self.parameters:
            if p.grad is not None:
                stretch = self.old.setdefault(p, torch.empty_like(p))
                stretch.copy_(p).abs_().add_(self.eta)
                norms.append(p.grad.mul_(stretch).norm())
        scale = self.rho / (torch.stack(norms).norm() + 1e-16)
        for p in self.parameters:
            if p.grad is not None:
                eps = self.old[p]
                eps.copy_(p.grad.mul_(eps)).mul_(scale)
                p.add_(eps)
                p.grad = None

    @torch.no_grad()
    def restore(self) -> None:
        """w + ε - ε."""
        for p in self.parameters:
            if p.grad is not None:
                p.sub_(self.old[p])


class NoStep(torch.optim.SGD):
    """A base optimizer whose step costs nothing, for code that cannot restore without one."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Do nothing."""


LOOPS: dict[str, tuple[str, type[PlainSAM]]] = {
    "SAM": ("davda54's algorithm", PlainSAM),
    "ASAM": ("SamsungLabs' algorithm", PlainASAM),
    "F-SAM": ("the authors' algorithm", PlainFriendlySAM),
}
"""By method, what the loop is called."""


def library(optimizer: SharpnessAware) -> Contender:
    """Enter and leave `perturbed()` of an optimizer of this library."""
    stack = ExitStack()
    return Contender(lambda: stack.enter_context(optimizer.perturbed()), stack.close)


def contenders(method: str, parameters: Sequence[Parameter]) -> dict[str, Contender | str]:
    """Everything that does `method`, by name; a string says why one is not there."""
    recipe: Any = {"SAM": SAM, "ASAM": ASAM, "F-SAM": FriendlySAM}[method]

    def base() -> torch.optim.SGD:
        return torch.optim.SGD(parameters, lr=0.1)

    found: dict[str, Contender | str] = {OURS: library(recipe(base(), RHO))}
    name, kind = LOOPS[method]
    for lean, suffix in ((False, ""), (True, ", lean")) if method != "ASAM" else ((False, ""),):
        loop = kind(parameters, lean=lean)
        found[name + suffix] = Contender(loop.ascend, loop.restore)
    if method == "F-SAM":
        halved = SharpnessAware(
            base(),
            RHO,
            direction=BatchNoise(SIGMA, DECAY, dtype=torch.bfloat16),
            geometry=Euclidean(),
        )
        found[f"{OURS}, m in bf16"] = library(halved)
    found[OTHER] = pytorch_optimizer(method, parameters)
    return found


def pytorch_optimizer(method: str, parameters: Sequence[Parameter]) -> Contender | str:
    """pytorch_optimizer's class with `foreach=True`."""
    other = optional("pytorch_optimizer")
    if other is None:
        return "not installed"
    kind = {"SAM": other.SAM, "ASAM": other.SAM, "F-SAM": other.FriendlySAM}[method]
    adaptive = {"adaptive": True} if method == "ASAM" else {}
    optimizer = kind(list(parameters), NoStep, rho=RHO, foreach=True, lr=0.1, **adaptive)
    return Contender(lambda: optimizer.first_step(zero_grad=True), optimizer.second_step)


def optional(name: str) -> Any:
    """A package, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def version(name: str) -> str | None:
    """The version of a package, or None where it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
