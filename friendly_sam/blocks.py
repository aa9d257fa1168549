"""Parameters and what belongs to them, gathered into blocks that are worked on together.

All arithmetic of the library runs over blocks with `torch._foreach_*`: a block holds tensors of
one device, one dtype and one setting, and is small enough that the temporaries of an operation
are a block's, never the whole model's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Parameter

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

WIDTH = 1024
"""The length of the rows that fused kernels work on."""

Shards = tuple["ProcessGroup", ...]
"""The process groups over which a tensor is sharded; empty for a tensor that is whole here."""


@dataclass(slots=True)
class Climber:
    """One parameter that is about to climb, with everything that belongs to it."""

    parameter: Tensor
    gradient: Tensor
    backup: Tensor
    rho: float
    average: Tensor | None = None
    updates: int = 0
    reference: Tensor | None = None
    scaled: bool = True


@dataclass(slots=True)
class Block:
    """Tensors that share device, dtype and setting; row i of each list belongs together."""

    rho: float
    """The radius of these parameters."""
    updates: int
    """How many gradients `averages` has taken in."""
    scaled: bool
    """Whether a geometry with `only=` reshapes the ball for these parameters."""
    shards: Shards
    fused: bool = False
    """Whether fused kernels work on it; its tensors are then rows of `WIDTH` numbers."""
    weights: list[Tensor] = field(default_factory=list)
    gradients: list[Tensor] = field(default_factory=list)
    backups: list[Tensor] = field(default_factory=list)
    averages: list[Tensor] = field(default_factory=list)
    references: list[Tensor] = field(default_factory=list)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights."""
        return self.weights[0].dtype

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.weights[0].device


def local(tensor: Tensor) -> Tensor:
    """The part of `tensor` that is in this process, as real numbers, sharing its memory."""
    if is_sharded(tensor):
        tensor = tensor.to_local()  # type: ignore[attr-defined]
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def shards(tensor: Tensor) -> Shards:
    """The process groups over which sums over the elements of `tensor` must be reduced."""
    if not is_sharded(tensor):
        return ()
    mesh, placements = tensor.device_mesh, tensor.placements  # type: ignore[attr-defined]
    return tuple(
        mesh.get_group(dim) for dim, placement in enumerate(placements) if placement.is_shard()
    )


def is_sharded(tensor: Tensor) -> bool:
    """Whether `tensor` is a DTensor, found out without importing torch.distributed."""
    return type(tensor) not in (Tensor, Parameter) and hasattr(tensor, "device_mesh")


def gather(
    climbers: Iterable[Climber], fuse: Callable[[Climber], bool] | None = None
) -> list[Block]:
    """Sort `climbers` into blocks of equal setting, each of at most `_limit` elements.

    Where `fuse` agrees, a tensor goes as rows of `WIDTH` numbers into a block for fused kernels,
    which has no limit, and what is left over of it goes the ordinary way.
    """
    blocks: list[Block] = []
    current: dict[tuple[object, ...], tuple[Block, int]] = {}
    for climber in climbers:
        rows = [local(climber.parameter), local(climber.gradient), local(climber.backup)]
        if climber.average is not None:
            rows.append(local(climber.average))
        if climber.reference is not None:
            rows.append(local(climber.reference))
        setting = (climber.rho, climber.updates, climber.scaled, shards(climber.parameter))
        for piece, fused in _pieces(rows, climber, fuse):
            weight = piece[0]
            key = (weight.device, weight.dtype, setting, fused)
            block, size = current.get(key, (None, 0))
            size += weight.numel()
            if block is None or (size > _limit(weight.device) and not fused):
                block, size = Block(*setting, fused=fused), weight.numel()
                blocks.append(block)
            current[key] = (block, size)
            block.weights.append(weight)
            block.gradients.append(piece[1])
            block.backups.append(piece[2])
            if climber.average is not None:
                block.averages.append(piece[3])
            if climber.reference is not None:
                block.references.append(piece[-1])
    return blocks


def _limit(device: torch.device) -> int:
    # On a CPU a block should stay in the last-level cache between the operations on it; elsewhere
    # the launch of a kernel is what costs, so blocks are as large as a temporary may be.
    return 2**20 if device.type == "cpu" else 2**24


def _pieces(
    rows: list[Tensor], climber: Climber, fuse: Callable[[Climber], bool] | None
) -> Iterable[tuple[Sequence[Tensor], bool]]:
    """Cut tensors that belong together into pieces, and say of each whether a kernel takes it."""
    size, limit = rows[0].numel(), _limit(rows[0].device)
    fused = fuse is not None and fuse(climber)
    if size <= limit and not fused:
        return [(rows, False)]
    flat = _flat(rows)
    if flat is None:
        return [(rows, False)]
    if not fused:
        split = zip(*(torch.split(row, limit) for row in flat), strict=True)
        return [(piece, False) for piece in split]
    whole = size - size % WIDTH
    if whole == size:
        return [([row.view(-1, WIDTH).detach() for row in flat], True)]
    return [
        ([row[:whole].view(-1, WIDTH).detach() for row in flat], True),
        ([row[whole:] for row in flat], False),
    ]


def _flat(rows: list[Tensor]) -> list[Tensor] | None:
    """The tensors with one dimension, sharing memory, if all lie in memory in the same order."""
    if all(row.is_contiguous() for row in rows):
        return [row.view(-1) for row in rows]
    if all(row.is_contiguous(memory_format=torch.channels_last) for row in rows):
        return [row.permute(0, 2, 3, 1).view(-1) for row in rows]
    return None


def total(
    blocks: Sequence[Block],
    sums: Callable[[Block], tuple[Tensor, ...]],
    count: int,
    groups: Iterable[Shards] = (),
) -> Tensor:
    """Add up `count` scalar sums over blocks and, where tensors are sharded, over processes.

    Args:
        blocks: what is summed over.
        sums: from a block its `count` scalar tensors.
        count: how many they are, for a process that has no block.
        groups: every way of sharding among the parameters, the same on all processes, so that a
            process that has no gradient for some of them still takes part in the reduction.
    """
    rows = [(block.shards, torch.stack(sums(block))) for block in blocks]
    device = rows[0][1].device if rows else None
    dtype = torch.float32
    for _, row in rows:
        dtype = torch.promote_types(dtype, row.dtype)
    added: dict[Shards, Tensor] = {
        group: torch.zeros(count, device=device, dtype=dtype) for group in groups
    }
    for group, row in rows:
        row = row.to(device=device, dtype=dtype)
        added[group] = added[group] + row if group in added else row
    for group, value in added.items():
        for process_group in group:
            torch.distributed.all_reduce(value, group=process_group)
    return torch.stack(list(added.values())).sum(0) if added else torch.zeros(count)


_LARGE = 2**13
"""Elements from which a call of its own for a tensor is worth it."""


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which sums over tensors of `dtype` are accumulated: float32 or wider.

    A float16 norm overflows at 65,504 and a bfloat16 one is off by parts in a thousand.
    """
    return torch.promote_types(dtype, torch.float32)


def squared_norm(tensors: list[Tensor]) -> Tensor:
    """The sum of the squares of all elements, a scalar tensor."""
    squares = []
    if tensors[0].device.type == "cpu" and tensors[0].dtype == wide(tensors[0].dtype):
        # On a CPU <x, x> takes less than half the time of ||x||, and errs less in float32.
        large = [t for t in tensors if t.numel() >= _LARGE and t.is_contiguous()]
        squares = [torch.dot(flat, flat) for flat in (t.view(-1) for t in large)]
        tensors = [t for t in tensors if t.numel() < _LARGE or not t.is_contiguous()]
    if tensors:
        norms = torch._foreach_norm(tensors, 2, dtype=wide(tensors[0].dtype))
        squares.append(torch.stack(norms).square().sum())
    return torch.stack(squares).sum()


def inner_product(left: list[Tensor], right: list[Tensor]) -> Tensor:
    """The sum of the products of all elements, a scalar tensor."""
    accumulate = wide(left[0].dtype)
    products = [
        torch.dot(a.reshape(-1).to(accumulate), b.reshape(-1).to(accumulate))
        for a, b in zip(left, right, strict=True)
    ]
    return torch.stack(products).sum()
