"""Parameters and what belongs to them, gathered into blocks that are worked on together.

All arithmetic of the library runs over blocks with `torch._foreach_*`: a block holds tensors of
one device, one dtype and one setting, and is small enough that the temporaries of an operation
are a block's, never the whole model's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Parameter

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

WIDTH = 4096
"""The length of the rows that fused kernels work on."""

Cut = Callable[[Tensor], Tensor]
"""From a tensor of a parameter, the piece of it that is in a block."""

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
    sources: list[tuple[Tensor, Cut | None]] = field(default_factory=list)
    """The parameter that each row is from and, unless it is that itself, how it was cut."""

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
        rows = [climber.parameter, climber.gradient, climber.backup]
        if climber.average is not None:
            rows.append(climber.average)
        if climber.reference is not None:
            rows.append(climber.reference)
        rows = [local(row) for row in rows]
        setting = (climber.rho, climber.updates, climber.scaled, shards(climber.parameter))
        for cut, fused in _cuts(rows, climber, fuse):
            piece = rows if cut is None else [cut(row) for row in rows]
            weight = piece[0]
            key = (weight.device, fused, setting, *(row.dtype for row in piece))
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
            if cut is None and climber.parameter.is_complex():
                cut = _uncut
            block.sources.append((climber.parameter, cut))
    return blocks


class Gathered:
    """Blocks that stay from step to step, as long as nothing but gradients and weights is new.

    Gathering takes Python several microseconds a tensor; to see that it is not due, one. Between
    steps no view of a parameter is kept: whoever replaces its memory finds nobody in the way.
    """

    def __init__(
        self, blocks: Sequence[Block], climbers: Sequence[Climber], setting: tuple[object, ...]
    ) -> None:
        self.blocks = blocks
        self.lasts = all(type(climber.parameter) in (Tensor, Parameter) for climber in climbers)
        """Whether another step may find them right."""
        self._setting = setting
        self._members = [
            (c.parameter, c.rho, _outline(c.parameter, c.gradient), c.average)
            for c in climbers
            if self.lasts
        ]

    def fill(
        self,
        climbing: Sequence[tuple[Tensor, float]],
        setting: tuple[object, ...],
        averages: Mapping[Tensor, Tensor],
    ) -> bool:
        """Put in what is new of `climbing`, unless the blocks must be gathered anew."""
        if setting != self._setting or len(climbing) != len(self._members):
            return False
        for now, then in zip(climbing, self._members, strict=True):
            parameter, rho, outline, average = then
            if (
                now[0] is not parameter
                or now[1] != rho
                or (gradient := parameter.grad) is None
                or _outline(parameter, gradient) != outline
                or averages.get(parameter) is not average
            ):
                return False
        for block in self.blocks:
            block.weights = [
                source if cut is None else cut(local(source)) for source, cut in block.sources
            ]
            block.gradients = [
                gradient if cut is None else cut(local(gradient))
                for source, cut in block.sources
                if (gradient := source.grad) is not None
            ]
        return True

    def clear(self) -> None:
        """Let go of what is new at each step; the second pass needs the gradients' memory."""
        for block in self.blocks:
            block.weights, block.gradients, block.references = [], [], []


def _outline(parameter: Tensor, gradient: Tensor) -> tuple[object, ...]:
    """What decides how a parameter and its gradient are cut, and into which block they go."""
    return (
        parameter.device,
        parameter.dtype,
        parameter.stride(),
        type(gradient),
        gradient.dtype,
        gradient.shape,
        gradient.stride(),
    )


def _limit(device: torch.device) -> int:
    # On a CPU a block should stay in the last-level cache between the operations on it; elsewhere
    # the launch of a kernel is what costs, so blocks are as large as a temporary may be.
    return 2**20 if device.type == "cpu" else 2**24


def _cuts(
    rows: Sequence[Tensor], climber: Climber, fuse: Callable[[Climber], bool] | None
) -> Iterable[tuple[Cut | None, bool]]:
    """How to cut tensors that belong together, and of each piece whether a kernel takes it."""
    size, limit = rows[0].numel(), _limit(rows[0].device)
    fused = fuse is not None and fuse(climber)
    if size <= limit and not fused:
        return [(None, False)]
    flat = _flat(rows)
    if flat is None:
        return [(None, False)]
    if not fused:
        return [(partial(_piece, flat, i, i + limit), False) for i in range(0, size, limit)]
    whole = size - size % WIDTH
    if whole == size:
        return [(_all_in_rows if flat is _in_order else partial(_rows, flat), True)]
    return [
        (partial(_rows, partial(_piece, flat, 0, whole)), True),
        (partial(_piece, flat, whole, size), False),
    ]


def _uncut(tensor: Tensor) -> Tensor:
    return tensor


def _piece(flat: Cut, start: int, end: int, tensor: Tensor) -> Tensor:
    return flat(tensor)[start:end]


def _rows(flat: Cut, tensor: Tensor) -> Tensor:
    return flat(tensor.detach()).view(-1, WIDTH)


def _all_in_rows(tensor: Tensor) -> Tensor:
    return tensor.detach().view(-1, WIDTH)


def _flat(rows: Sequence[Tensor]) -> Cut | None:
    """What gives these tensors one dimension, sharing memory, if all lie in the same order."""
    if all(row.is_contiguous() for row in rows):
        return _in_order
    if all(row.is_contiguous(memory_format=torch.channels_last) for row in rows):
        return _channels_last
    return None


def _in_order(tensor: Tensor) -> Tensor:
    return tensor.view(-1)


def _channels_last(tensor: Tensor) -> Tensor:
    return tensor.permute(0, 2, 3, 1).view(-1)


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
        if group:
            everywhere = value.double()  # a process without blocks does not know the others' dtype
            for process_group in group:
                torch.distributed.all_reduce(everywhere, group=process_group)
            added[group] = everywhere.to(dtype)
    return torch.stack(list(added.values())).sum(0) if added else torch.zeros(count)


_LARGE = 2**13
"""Elements from which a call of its own for a tensor is worth it."""

_SIDE_BY_SIDE = 2**16
"""Elements that one sum may take in: in float32 the error of a longer one grows with it."""


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which sums over tensors of `dtype` are accumulated: float32 or wider.

    A float16 norm overflows at 65,504 and a bfloat16 one is off by parts in a thousand.
    """
    return torch.promote_types(dtype, torch.float32)


def squared_norm(tensors: list[Tensor]) -> Tensor:
    """The sum of the squares of all elements, a scalar tensor."""
    if tensors[0].device.type != "cpu" or tensors[0].dtype != wide(tensors[0].dtype):
        return _sum_of_squared_norms(tensors)
    # On a CPU <x, x> takes less than half the time of ||x||, and errs less in float32; of many
    # small tensors it takes a fifth, once they are laid side by side.
    squares: list[Tensor] = []
    small: list[Tensor] = []
    size = 0
    for tensor in tensors:
        flat = tensor if tensor.dim() == 1 else _flattened(tensor)
        if flat is None:
            squares.append(_sum_of_squared_norms([tensor]))
        elif flat.numel() >= _LARGE:
            squares.append(torch.dot(flat, flat))
        else:
            small.append(flat)
            size += flat.numel()
            if size >= _SIDE_BY_SIDE:
                squares.append(_square(torch.cat(small)))
                small, size = [], 0
    if small:
        squares.append(_square(torch.cat(small)))
    return torch.stack(squares).sum()


def _square(flat: Tensor) -> Tensor:
    return torch.dot(flat, flat)


def _sum_of_squared_norms(tensors: list[Tensor]) -> Tensor:
    norms = torch._foreach_norm(tensors, 2, dtype=wide(tensors[0].dtype))
    return torch.stack(norms).square().sum()


def _flattened(tensor: Tensor) -> Tensor | None:
    """All elements in one dimension, in any order, if that needs no copy worth the name."""
    flat = _flat([tensor])
    if flat is not None:
        return flat(tensor)
    return tensor.reshape(-1) if tensor.numel() < _LARGE else None


def inner_product(left: list[Tensor], right: list[Tensor]) -> Tensor:
    """The sum of the products of all elements, a scalar tensor."""
    accumulate = wide(left[0].dtype)
    products = [
        torch.dot(a.reshape(-1).to(accumulate), b.reshape(-1).to(accumulate))
        for a, b in zip(left, right, strict=True)
    ]
    return torch.stack(products).sum()
