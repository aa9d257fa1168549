"""`fused=True`: the ascent in two passes over memory, compiled.

The foreach path reads and writes some tensors more often than the mathematics asks for. For large
tensors two kernels, compiled by `torch.compile`, do with the least:

    measure   reads g, m (and w where T needs it), gives ||g||², ||d||² and ||T d||²
    move      reads g, m, w and writes m, the backup of w, and w + ε

That is 32 bytes a parameter for F-SAM in float32. `measure` writes nothing, so gradients that are
not finite leave the averages alone.

Before it is used, each kernel is compared with what it was compiled from, and the backup bit for
bit: torch 2.13 compiles `backup.copy_(w); w.add_(...)` to a kernel that stores w + ε in both. So
the backup is w times a one that the compiler does not know to be one.

The kernels see a tensor as rows of `WIDTH` numbers: one compilation serves every length, and the
sum of a row needs no summation tree. Small tensors, what does not fill a row, plain SAM, and steps
that have no kernel go the foreach way.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from friendly_sam.blocks import WIDTH, Block, Climber, local
from friendly_sam.directions import Direction, Gradient
from friendly_sam.geometries import Euclidean, Geometry
from friendly_sam.perturbation import Moved

LEAST = 2**16
"""Elements below which the call of a kernel costs more than it saves."""


class Kernels:
    """The two passes for one direction and one geometry."""

    def __init__(self, direction: Direction, geometry: Geometry) -> None:
        self._direction = direction
        self._compiled: dict[tuple[object, ...], bool] = {}
        # SAM itself (norm, backup, sum) has nothing to fuse: foreach is as quick, or quicker.
        self._plain = type(direction) is Gradient and type(geometry) is Euclidean
        self._has_form = _up_to_date(geometry, ("squared_of",), ("squared",))
        self._turns = _up_to_date(
            direction, ("constant", "turned"), ("coefficient", "turn_", "take_in")
        )

        def perturbation(
            gradient: Tensor, average: Tensor | None, weight: Tensor, scaled: bool, by: Tensor
        ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
            g = gradient * by[0]
            d, new_average = direction.turned(g, average, by[1])
            t_squared = geometry.squared_of(weight, g) if scaled else None
            return g, d, new_average, None if t_squared is None else d * t_squared

        def measure(
            gradient: Tensor, average: Tensor | None, weight: Tensor, scaled: bool, by: Tensor
        ) -> Tensor:
            g, d, _, t_squared_d = perturbation(gradient, average, weight, scaled, by)
            sums = [(g * g).sum(1), (d * d).sum(1)]
            return torch.stack(sums if t_squared_d is None else [*sums, (d * t_squared_d).sum(1)])

        def move(
            gradient: Tensor,
            average: Tensor | None,
            weight: Tensor,
            scaled: bool,
            by: Tensor,
            backup: Tensor,
            scale: Tensor,
        ) -> None:
            _, d, new_average, t_squared_d = perturbation(gradient, average, weight, scaled, by)
            backup.copy_(weight * by[2])
            weight.add_((d if t_squared_d is None else t_squared_d) * scale)
            if average is not None and new_average is not None:
                average.copy_(new_average)

        if not self._has_form:
            warnings.warn(
                f"fused=True: {type(geometry).__name__} has no fused form (`squared_of`), so the "
                "foreach path is used",
                stacklevel=2,
            )
        self._eager: tuple[Callable[..., Tensor], Callable[..., None]] = (measure, move)
        self._measure, self._move = _compile(measure), _compile(move)

    def take(self, climber: Climber) -> bool:
        """Whether there is a kernel for this parameter on this step."""
        weight = local(climber.parameter)
        if weight.numel() < LEAST or weight.dtype not in (torch.float32, torch.float64):
            return False
        if self._plain or not self._has_form or not self._turns:
            return False
        if self._direction.constant(climber.updates) is None:
            return False
        if climber.gradient.dtype != climber.parameter.dtype:
            return False
        average = None if climber.average is None else local(climber.average).dtype
        device = weight.device.type
        # In other surroundings torch.compile makes another kernel; each is tried before its use.
        surroundings = (
            torch.get_num_threads(),
            torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device),
            torch.are_deterministic_algorithms_enabled(),
            torch.get_default_dtype(),
        )
        key = (weight.dtype, average, device, climber.scaled, surroundings)
        if key not in self._compiled:
            self._compiled[key] = self._compiles(weight, average, climber.scaled)
        return self._compiled[key]

    def measure(self, block: Block, inverse_scale: Tensor | None) -> Tensor:
        """||g||², ||d||² and ||T d||² over the block; nothing is written."""
        by = self._by(block, inverse_scale)
        rows = [
            self._measure(g, m, w, block.scaled, by)
            for g, m, w in zip(block.gradients, _averages(block), block.weights, strict=True)
        ]
        sums = torch.cat(rows, dim=1).sum(1)
        return sums if len(sums) == 3 else sums[[0, 1, 1]]  # T = 1

    def move(
        self, block: Block, inverse_scale: Tensor | None, scale: Tensor, moved: list[Moved]
    ) -> None:
        """Take in g, keep w in the backup and go to w + scale T² d, tensor by tensor.

        From the last to the first: what `measure` read last may still be in the cache.
        """
        by = self._by(block, inverse_scale)
        scale = scale.to(block.dtype)
        rows = zip(block.gradients, _averages(block), block.weights, block.backups, strict=True)
        for g, m, w, backup in reversed(list(rows)):
            self._move(g, m, w, block.scaled, by, backup, scale)
            moved.append(([w], [backup]))

    def _by(self, block: Block, inverse_scale: Tensor | None) -> Tensor:
        constant = self._direction.constant(block.updates)
        by = torch.tensor([1.0, constant, 1.0], dtype=block.dtype, device=block.device)
        if inverse_scale is not None:
            by[0] = inverse_scale.to(block.device)
        return by

    def _compiles(self, weight: Tensor, average: torch.dtype | None, scaled: bool) -> bool:
        """Compile and try on tensors that nobody needs, before any real one is touched."""
        generator = torch.Generator().manual_seed(0)
        trial = torch.randn(3, 256, WIDTH, dtype=weight.dtype, generator=generator)
        w, g, m = (part.clone() for part in trial.to(weight.device))  # offset 0, as real ones have
        limits = torch.finfo(w.dtype)
        odd = [-0.0, limits.max, limits.tiny, limits.smallest_normal / 2, limits.eps]
        w[0, : len(odd)] = w.new_tensor(odd)
        state = [g, m.to(average) if average is not None else None, w]
        copies = [None if tensor is None else tensor.clone() for tensor in state]
        backup, before = torch.zeros_like(w), w.clone()
        for tensor in (*state, backup):
            if tensor is not None:
                torch._dynamo.mark_dynamic(tensor, 0)
        by, scale = w.new_tensor([0.5, 0.9, 1.0]), w.new_tensor(0.1)
        measure, move = self._eager
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the compiler's own, about its own code
                sums = self._measure(*state, scaled, by)
                self._move(*state, scaled, by, backup, scale)
            bits = torch.int32 if w.dtype == torch.float32 else torch.int64
            if not torch.equal(backup.view(bits), before.view(bits)):
                raise RuntimeError("the backup of its kernel is not exact")
            torch.testing.assert_close(sums, measure(*copies, scaled, by))
            move(*copies, scaled, by, backup, scale)
            for found, expected in zip(state, copies, strict=True):
                torch.testing.assert_close(found, expected)
        except Exception as error:
            reason = getattr(error, "inner_exception", error)
            line = str(reason).strip().partition("\n")[0]
            warnings.warn(
                f"fused=True: torch.compile gave no kernel ({type(reason).__name__}: {line}). "
                "The foreach path is used instead; what is missing most often is a C++ compiler.",
                stacklevel=2,
            )
            return False
        return True


def kernels_for(direction: Direction, geometry: Geometry) -> Kernels:
    """The kernels for a setting; optimizers of one setting share them, where it has a hash."""
    try:
        return _shared_kernels(direction, geometry)
    except TypeError:
        return Kernels(direction, geometry)


_shared_kernels = lru_cache(maxsize=64)(Kernels)


def _up_to_date(part: object, forms: tuple[str, ...], sources: tuple[str, ...]) -> bool:
    """Whether no subclass has changed a method (`sources`) and left its fused form behind."""

    def depth(name: str) -> int:
        return next(i for i, kind in enumerate(type(part).__mro__) if name in vars(kind))

    def is_given(name: str) -> bool:
        return type(part).__mro__[depth(name)] not in (Direction, Geometry)

    return all(is_given(form) and depth(form) <= min(map(depth, sources)) for form in forms)


def _averages(block: Block) -> list[Tensor] | list[None]:
    return block.averages or [None] * len(block.weights)


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    # torch.compile counts recompilations by code object: each setting gets one of its own.
    own = FunctionType(
        function.__code__.replace(), function.__globals__, function.__name__, None,
        function.__closure__,
    )  # fmt: skip
    return torch.compile(own, fullgraph=True)
