"""The one formula of the library: ε = ρ T² d / ||T d||, and the way there and back.

`climb` moves the weights of some blocks from w to w + ε; `descend` brings back w, bit for bit.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from friendly_sam.blocks import Block, Shards, inner_product, squared_norm, total
from friendly_sam.directions import Direction, Gradient
from friendly_sam.geometries import Euclidean, Geometry

if TYPE_CHECKING:
    from friendly_sam.fused import Kernels

ROUNDING = 16
"""A direction with ||d|| <= 16 eps(dtype) ||g|| is rounding noise and counts as zero."""

Moved = tuple[list[Tensor], list[Tensor]]
"""Weights that are at w + ε, and w. Nothing else is kept until they are back."""


def climb(
    blocks: Sequence[Block],
    direction: Direction,
    geometry: Geometry,
    *,
    moved: list[Moved],
    groups: Sequence[Shards] = (),
    inverse_scale: Tensor | None = None,
    kernels: Kernels | None = None,
) -> bool:
    """Move the weights of `blocks` to w + ε, with w kept in their backups.

        d = direction(g)                      which way
        ε = ρ T² d / ||T d||                  norm over all parameters together

    The gradients are used up. A zero direction moves nothing. If a gradient is not finite,
    nothing is touched at all, the moving averages included.

    Args:
        blocks: what climbs.
        direction: gives d.
        geometry: gives T.
        moved: takes weights and their backups as soon as they may have moved; it is to be given
            to `descend`, also when this function raises.
        groups: every way of sharding among the parameters (see `friendly_sam.blocks.total`).
        inverse_scale: what the gradients are multiplied with first (the scale of a GradScaler).
        kernels: what works on the blocks that are marked as fused.

    Returns:
        Whether the gradients were finite.
    """
    if not blocks and not groups:
        return True
    measured = {
        id(block): kernels.measure(block, inverse_scale)
        for block in blocks
        if block.fused and kernels is not None
    }
    g_squared, noise_squared, finite = gradient_norms(blocks, groups, inverse_scale, measured)
    if not finite:
        return False

    def inner(left: str, right: str) -> tuple[Tensor, Tensor]:
        def products(block: Block) -> tuple[Tensor, ...]:
            a, b = getattr(block, left), getattr(block, right)
            return inner_product(a, b), inner_product(b, b)

        along, squared = total(blocks, products, 2, groups)
        return along, squared

    coefficient = direction.coefficient(blocks, inner)

    def turn_and_reshape(block: Block) -> tuple[Tensor, ...]:
        if id(block) in measured:
            _, d_squared, td_squared = measured[id(block)]
            return d_squared, td_squared
        t_squared = geometry.squared(block)
        direction.turn_(block, coefficient)
        d_squared = squared_norm(block.gradients)
        if t_squared is None:
            return d_squared, d_squared
        torch._foreach_mul_(t_squared, block.gradients)
        td_squared = inner_product(block.gradients, t_squared)  # ||T d||² = <d, T² d>
        torch._foreach_copy_(block.gradients, t_squared)
        return d_squared, td_squared

    # Each pass goes the other way: what the one before came to last may still be in the cache.
    blocks = blocks[::-1]
    if type(direction) is Gradient and type(geometry) is Euclidean:
        d_squared = td_squared = g_squared
    else:
        d_squared, td_squared = total(blocks, turn_and_reshape, 2, groups)
        blocks = blocks[::-1]
    is_direction = (d_squared > noise_squared) & (td_squared > 0)
    inverse_norm = torch.where(is_direction, td_squared.rsqrt(), torch.zeros_like(td_squared))

    for block in blocks:
        scale = inverse_norm.to(block.device) * block.rho
        if block.fused and kernels is not None:
            kernels.move(block, inverse_scale, scale, moved)
            continue
        torch._foreach_copy_(block.backups, block.weights)
        moved.append((block.weights, block.backups))
        _add_scaled_(block.weights, block.gradients, scale)
    return True


def descend(moved: list[Moved]) -> None:
    """Bring back the weights that `climb` moved, bit for bit, in the same storage."""
    while moved:
        torch._foreach_copy_(*moved[-1])
        moved.pop()


def gradient_norms(
    blocks: Sequence[Block],
    groups: Iterable[Shards] = (),
    inverse_scale: Tensor | None = None,
    measured: Mapping[int, Tensor] | None = None,
) -> tuple[Tensor, Tensor, bool]:
    """||g||², what of it is rounding, and whether all gradients are finite.

    The last is the one host synchronisation of a step. `measured` has the sums of fused blocks.
    """

    def norms(block: Block) -> tuple[Tensor, ...]:
        if measured and id(block) in measured:
            squared = measured[id(block)][0]
        else:
            if inverse_scale is not None:
                torch._foreach_mul_(block.gradients, inverse_scale.to(block.device))
            squared = squared_norm(block.gradients)
        rounding = (ROUNDING * torch.finfo(block.dtype).eps) ** 2
        reference = squared_norm(block.references) if block.references else squared
        return squared, squared * rounding, reference

    sums = total(blocks, norms, 3, groups)
    return sums[0], sums[1], bool(sums.isfinite().all().item())


def _add_scaled_(weights: list[Tensor], vector: list[Tensor], scale: Tensor) -> None:
    """w ← w + scale v, without reading `scale` back to the host."""
    if weights[0].device.type == "cpu" and weights[0].dtype in (torch.float32, torch.float64):
        torch._foreach_addcmul_(weights, vector, [scale] * len(weights))  # one pass over memory
    else:
        torch._foreach_mul_(vector, scale)
        torch._foreach_add_(weights, vector)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold back Ctrl-C until the block ends, so that no tensor is left half-way."""
    handler = None
    if threading.current_thread() is threading.main_thread():
        handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):  # not the main thread, or the signal never becomes an exception
        yield
        return
    held: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: held.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if held:
            handler(*held[0])
