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
sum of a row needs no summation tree. The call of a compiled function costs as much as half a
megabyte of arithmetic, so there are kernels for several tensors (`TOGETHER`). Small
tensors, what does not fill a row, plain SAM, and steps that have no kernel go the foreach way.
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

Tensors = list[Tensor]
Averages = list[Tensor] | list[None]

LEAST = 2**16
"""Elements below which the call of a kernel costs more than it saves."""

TOGETHER = (8, 4, 1)
"""How many tensors one call can take: most first."""


class Kernels:
    """The two passes for one direction and one geometry."""

    def __init__(self, direction: Direction, geometry: Geometry) -> None:
        self._direction = direction
        self._compiled: dict[tuple[object, ...], bool] = {}
        self._devices: dict[str, None] = {}
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
            gradients: Tensors, averages: Averages, weights: Tensors, scaled: bool, by: Tensor
        ) -> Tensor:
            sums = []
            for gradient, average, weight in zip(gradients, averages, weights, strict=True):
                g, d, _, t_squared_d = perturbation(gradient, average, weight, scaled, by)
                squares = [g * g, d * d] + ([] if t_squared_d is None else [d * t_squared_d])
                sums.append(torch.stack([square.sum(1) for square in squares]))
            return torch.cat(sums, dim=1)

        def move(
            gradients: Tensors,
            averages: Averages,
            weights: Tensors,
            scaled: bool,
            by: Tensor,
            backups: Tensors,
            scale: Tensor,
        ) -> None:
            rows = zip(gradients, averages, weights, backups, strict=True)
            for gradient, average, weight, backup in rows:
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
        self._measure = {count: _compile(measure) for count in TOGETHER}
        self._move = {count: _compile(move) for count in TOGETHER}

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
        key = (device, weight.dtype, average, climber.scaled, _surroundings(device))
        if key not in self._compiled:
            self._devices[device] = None
            self._compiled[key] = self._compiles(weight, average, climber.scaled)
        return self._compiled[key]

    def surroundings(self) -> tuple[object, ...]:
        """Where these differ, torch.compile makes another kernel; each is tried before its use."""
        return tuple(_surroundings(device) for device in self._devices)

    def measure(self, block: Block, inverse_scale: Tensor | None) -> Tensor:
        """||g||², ||d||² and ||T d||² over the block; nothing is written."""
        by, averages = self._by(block, inverse_scale), _averages(block)
        sums = torch.cat(
            [
                self._measure[count](
                    block.gradients[rows], averages[rows], block.weights[rows], block.scaled, by
                )
                for rows, count in _calls(len(block.weights))
            ],
            dim=1,
        ).sum(1)
        return sums if len(sums) == 3 else sums[[0, 1, 1]]  # T = 1

    def move(
        self, block: Block, inverse_scale: Tensor | None, scale: Tensor, moved: list[Moved]
    ) -> None:
        """Take in g, keep w in the backup and go to w + scale T² d, tensor by tensor.

        From the last to the first: what `measure` read last may still be in the cache.
        """
        by, averages = self._by(block, inverse_scale), _averages(block)
        scale = scale.to(block.dtype)
        for rows, count in reversed(_calls(len(block.weights))):
            weights, backups = block.weights[rows], block.backups[rows]
            self._move[count](
                block.gradients[rows], averages[rows], weights, block.scaled, by, backups, scale
            )
            moved.append((weights, backups))

    def _by(self, block: Block, inverse_scale: Tensor | None) -> Tensor:
        constant = self._direction.constant(block.updates)
        by = torch.tensor([1.0, constant, 1.0], dtype=block.dtype, device=block.device)
        if inverse_scale is not None:
            by[0] = inverse_scale.to(block.device)
        return by

    def _compiles(self, weight: Tensor, average: torch.dtype | None, scaled: bool) -> bool:
        """Compile and try on tensors that nobody needs, before any real one is touched."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the compiler's own, about its own code
                for count in self._move:
                    self._try(count, weight, average, scaled)
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

    def _try(self, count: int, like: Tensor, average: torch.dtype | None, scaled: bool) -> None:
        """Compare the kernels for `count` tensors with what they were compiled from."""
        generator = torch.Generator().manual_seed(0)
        # Lengths that differ, or torch.compile would take them for equal ever after.
        state = [
            [
                torch.randn(16 + i, WIDTH, dtype=like.dtype, generator=generator).to(like.device)
                for i in range(count)
            ]
            for _ in range(3)
        ]
        gradients, weights = state[0], state[2]
        averages = [m.to(average) if average is not None else None for m in state[1]]
        limits = torch.finfo(like.dtype)
        odd = [-0.0, limits.max, limits.tiny, limits.smallest_normal / 2, limits.eps]
        weights[0][0, : len(odd)] = weights[0].new_tensor(odd)
        backups = [torch.zeros_like(w) for w in weights]
        for tensor in (*gradients, *averages, *weights, *backups):
            if tensor is not None:
                torch._dynamo.mark_dynamic(tensor, 0)
        by, scale = weights[0].new_tensor([0.5, 0.9, 1.0]), weights[0].new_tensor(0.1)
        expected_averages = [None if m is None else m.clone() for m in averages]
        expected_weights, before = ([w.clone() for w in weights] for _ in range(2))
        measure, move = self._eager

        sums = self._measure[count](gradients, averages, weights, scaled, by)
        self._move[count](gradients, averages, weights, scaled, by, backups, scale)
        bits = torch.int32 if like.dtype == torch.float32 else torch.int64
        for backup, old in zip(backups, before, strict=True):
            if not torch.equal(backup.view(bits), old.view(bits)):
                raise RuntimeError("the backup of its kernel is not exact")
        expected = (gradients, expected_averages, expected_weights, scaled, by)
        torch.testing.assert_close(sums, measure(*expected))
        move(*expected, backups, scale)
        torch.testing.assert_close(weights, expected_weights)
        if average is not None:
            torch.testing.assert_close(averages, expected_averages)


def _surroundings(device: str) -> tuple[object, ...]:
    return (
        torch.get_num_threads(),
        torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device),
        torch.are_deterministic_algorithms_enabled(),
        torch.get_default_dtype(),
    )


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


def _averages(block: Block) -> Averages:
    return block.averages or [None] * len(block.weights)


def _calls(tensors: int) -> list[tuple[slice, int]]:
    """How a number of tensors is shared out among calls: which, and how many they are."""
    calls, start = [], 0
    for count in TOGETHER:
        while start + count <= tensors:
            calls.append((slice(start, start + count), count))
            start += count
    return calls


def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    # torch.compile counts recompilations by code object: each setting gets one of its own.
    own = FunctionType(
        function.__code__.replace(), function.__globals__, function.__name__, None,
        function.__closure__,
    )  # fmt: skip
    return torch.compile(own, fullgraph=True)
