"""A list of tensors with the methods of one, so that each formula is written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._foreach_utils import _get_fused_kernels_supported_devices

Scalar = float | Tensor
"""A number of Python, or a tensor without dimensions that the host never looks at."""


class Tensors(list[Tensor]):
    """Tensors of one device and dtype; `m.lerp_(g, w)` is `torch._foreach_lerp_(m, g, w)`.

    Any method of a tensor that has a foreach form works, in place where its name ends with `_`,
    and so do `+`, `-`, `*` and `/`. The same text therefore runs on a tensor, on a list of
    tensors in a few launches, and under `torch.compile`.

    Example:
        >>> import torch
        >>> from friendly_sam._machinery.tensors import Tensors
        >>> g, m = Tensors([torch.ones(2)]), Tensors([torch.zeros(2)])
        >>> m.lerp_(g, 0.1)
        [tensor([0.1000, 0.1000])]
        >>> g - 2.0 * m
        [tensor([0.8000, 0.8000])]
    """

    skip: Tensor | None = None
    """On an accelerator a float: where it is 1, `lerp_` and `sub_` leave everything as it is."""
    scratch: list[Tensors] | None = None
    """Memory for the result of the next method that is not in place, instead of new memory."""

    if TYPE_CHECKING:  # every function of torch that begins with `_foreach_`, see below

        def __getattr__(self, name: str) -> Callable[..., Tensors]: ...

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the tensors."""
        return self[0].dtype

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self[0].device

    def clone(self) -> Tensors:
        """Return copies."""
        if self.scratch:
            return self.scratch.pop().copy_(self)
        return Tensors([torch.empty_like(tensor) for tensor in self]).copy_(self)

    def to(self, dtype: torch.dtype) -> Tensors:
        """Return the tensors in `dtype`: themselves, or copies."""
        if self.dtype == dtype:
            return self
        return Tensors([torch.empty_like(tensor, dtype=dtype) for tensor in self]).copy_(self)

    def copy_(self, other: list[Tensor]) -> Tensors:
        """x ← y."""
        torch._foreach_copy_(self, other)
        return self

    def square_(self) -> Tensors:
        """x ← x²."""
        torch._foreach_mul_(self, self)
        return self

    def square(self) -> Tensors:
        """x²."""
        return self.mul(self)

    def sub_(self, other: Tensors, alpha: Scalar = 1.0) -> Tensors:
        """x ← x - α y, unless `skip` says to leave x as it is."""
        if isinstance(alpha, Tensor) and self.device.type == "cpu":
            alpha = alpha.item()
        if self.skip is not None or isinstance(alpha, Tensor):
            fused_step_(self, other.to(self.dtype), -alpha, self.skip)
        else:
            torch._foreach_sub_(self, other, alpha=alpha)
        return self

    def add_(self, other: Tensors | float, alpha: Scalar = 1.0) -> Tensors:
        """x ← x + α y."""
        if isinstance(other, list):
            return self.sub_(other, alpha=-alpha)
        torch._foreach_add_(self, other)
        return self

    def lerp_(self, other: Tensors, weight: Scalar) -> Tensors:
        """x ← x + weight (y - x), unless `skip` says to leave x as it is."""
        if self.dtype != other.dtype:
            wide = self.to(other.dtype)
            wide.skip = self.skip
            return self.copy_(wide.lerp_(other, weight))
        if isinstance(weight, Tensor) and self.device.type == "cpu":
            weight = weight.item()
        if self.skip is None and not isinstance(weight, Tensor):
            torch._foreach_lerp_(self, other, weight)
        else:
            fused_step_(self, other, weight, self.skip, decay=1.0)
        return self

    def add_scaled_(self, other: Tensors, scale: Scalar, skip: Tensor | None = None) -> Tensors:
        """x ← x + scale y, unless `skip` is 1: where it may be, y may be anything."""
        if skip is None and not isinstance(scale, Tensor):
            torch._foreach_add_(self, other, alpha=scale)  # promotes and rounds once
        elif self.dtype == other.dtype:
            fused_step_(self, other, scale, skip)
        else:  # a product in the wider dtype, rounded to that of x
            wide = torch.promote_types(self.dtype, other.dtype)
            fused_step_(self, other.to(wide).mul(scale).to(self.dtype), 1.0, skip)
        return self

    def _like(self, argument: Any) -> Any:
        """Bring a scalar tensor to the dtype and device that the foreach kernels want."""
        if isinstance(argument, Tensor) and argument.dim() == 0:
            return argument.to(device=self.device, dtype=self.dtype)
        return argument

    def __add__(self, other: Any) -> Tensors:  # type: ignore[override]
        return self.add(other)

    def __sub__(self, other: Any) -> Tensors:
        return self.sub(other)

    def __mul__(self, other: Any) -> Tensors:
        return self.mul(other)

    def __truediv__(self, other: Any) -> Tensors:
        return self.div(other)

    def __neg__(self) -> Tensors:
        return self.neg()

    def __radd__(self, other: Any) -> Tensors:
        return self.add(other)

    def __rsub__(self, other: Any) -> Tensors:
        return self.neg().add_(other)

    def __rmul__(self, other: Any) -> Tensors:
        return self.mul(other)


def _method(name: str) -> Callable[..., Tensors]:
    function, in_place = getattr(torch, f"_foreach_{name}"), name.endswith("_")

    def method(self: Tensors, *arguments: Any, **settings: Any) -> Tensors:
        if self.scratch and not in_place:
            memory = self.scratch.pop().copy_(self)
            return getattr(memory, f"{name}_")(*arguments, **settings)  # type: ignore[no-any-return]
        result = function(self, *map(self._like, arguments), **settings)
        return self if in_place else Tensors(result)

    return method


for _function in dir(torch):
    _name = _function.removeprefix("_foreach_")
    if _name != _function and not hasattr(Tensors, _name):
        setattr(Tensors, _name, _method(_name))


def fused_step_(
    x: Tensors, y: Tensors, scale: Scalar, skip: Tensor | None, *, decay: float = 0.0
) -> None:
    """x ← x + scale (y - decay x), unless `skip` is 1; `y` stays as it is.

    A fused step of SGD that maximises does just this: in one pass over memory, in float32 where
    the tensors are narrower, without a look at `scale` or `skip` by the host.
    """
    if isinstance(scale, Tensor) and x.dtype == torch.float64:
        # The kernels read a learning rate that is a tensor as float32.
        y, scale, decay = (y.sub(x) if decay else y).mul(scale), 1.0, 0.0
    elif isinstance(scale, Tensor):
        scale = scale.to(device=x.device, dtype=torch.float32)
    if any(a.stride() != b.stride() for a, b in zip(x, y, strict=True)):
        y = Tensors([torch.empty_like(tensor) for tensor in x]).copy_(y)  # kernels want one layout
    if x.device.type not in _get_fused_kernels_supported_devices():
        for a, b in zip(x, y, strict=True):
            moved = a + scale * (b - decay * a)
            a.copy_(moved if skip is None else torch.where(skip > 0, a, moved))
        return
    torch._fused_sgd_(
        x,
        y,
        [],
        weight_decay=decay,
        momentum=0.0,
        lr=scale,
        dampening=0.0,
        nesterov=False,
        maximize=True,
        is_first_step=False,
        found_inf=skip,
    )


class Everywhere:
    """Scalars for every device that asks; tensors go to another device in one transfer."""

    def __init__(self, *scalars: Scalar | None) -> None:
        self._scalars = scalars
        self._tensors = [scalar for scalar in scalars if isinstance(scalar, Tensor)]
        self._on = {tensor.device: scalars for tensor in self._tensors}

    def on(self, device: torch.device) -> tuple[Any, ...]:
        """Return the scalars there; where that is a CPU and they are not, the host waits once."""
        if not self._tensors:
            return self._scalars
        if device not in self._on:
            dtype = torch.float64 if device.type != "mps" else torch.float32
            one = self._tensors[0].dtype
            there = torch.stack([tensor.to(one) for tensor in self._tensors]).to(device)
            moved = iter(there.to(dtype).unbind())
            self._on[device] = tuple(
                next(moved).to(scalar.dtype) if isinstance(scalar, Tensor) else scalar
                for scalar in self._scalars
            )
        return self._on[device]
