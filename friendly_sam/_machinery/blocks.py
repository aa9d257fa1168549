"""Parameters and what belongs to them, gathered into blocks that are worked on together.

A block holds tensors of one device, one dtype and one setting. On a CPU it is small enough to
stay in the cache from one operation to the next; on an accelerator it is the whole model, unless
a formula needs temporaries, which then are a small part of the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import Parameter

from friendly_sam._machinery.tensors import Scalar, Tensors

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

Shards = tuple["ProcessGroup", ...]
"""The process groups over which a tensor is sharded; empty for a tensor that is whole here."""

FEW_OPERATIONS, MANY_OPERATIONS = 2**20, 2**19
"""Elements of a block on a CPU: its tensors stay in the cache between the operations on it. Where
there are many it is smaller, but not so small that Python costs more than it saves. A block may be
half as large again where that saves another one."""
SMALLEST = 2**20
"""Elements below which a block on an accelerator is not made smaller."""
SHARE = 32
"""The part of the parameters that a block with temporaries has on an accelerator."""


@dataclass(slots=True)
class Slot:
    """One parameter that takes part, with everything that belongs to it."""

    parameter: Tensor
    gradient: Tensor
    backup: Tensor | None = None
    """Memory of the size of what is in this process."""
    memory: Tensor | None = None
    rho: float = 0.0
    """The radius; negative where the base optimizer maximises."""
    scaled: bool = True
    """Whether a geometry with `only=` applies."""
    updates: Scalar = 0
    """How many gradients `memory` has taken in."""


@dataclass(slots=True)
class Block:
    """Tensors that share device, dtype and setting; item i of each list belongs together."""

    rho: float
    scaled: bool
    owned: bool
    """Whether nothing else shares the memory of `g`, so that it may be overwritten."""
    updates: Scalar
    shards: Shards
    w: Tensors = field(default_factory=Tensors)
    g: Tensors = field(default_factory=Tensors)
    b: Tensors = field(default_factory=Tensors)
    """Where w is kept while the weights are w + ε."""
    m: Tensors = field(default_factory=Tensors)

    @property
    def narrow(self) -> bool:
        """Whether T d may overflow or underflow in the dtype of the gradients."""
        return self.g.dtype == torch.float16

    @property
    def wide(self) -> torch.dtype:
        """A dtype in which it does not."""
        return torch.float32 if self.narrow else self.g.dtype


def local(tensor: Tensor) -> Tensor:
    """Return the part of `tensor` that is in this process, as real numbers, sharing its memory."""
    if is_sharded(tensor):
        tensor = tensor.to_local()  # type: ignore[attr-defined]
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def shards(tensor: Tensor) -> Shards:
    """Return the process groups over which sums over the elements of `tensor` must be reduced."""
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
    slots: Iterable[Slot], *, many: bool = False, temporaries: bool = False, ours: bool = True
) -> list[Block]:
    """Sort `slots` into blocks of equal setting.

    Args:
        slots: what is gathered.
        many: whether a formula goes over a block many times.
        temporaries: whether a formula needs temporaries as large as its block.
        ours: whether gradients may be overwritten where nothing shares their memory.
    """
    rows = [(slot, local(slot.parameter), local(slot.gradient)) for slot in slots]
    rows = [row for row in rows if row[1].numel() > 0]
    owned = exclusive([gradient for _, _, gradient in rows]) if ours else [False] * len(rows)
    limits: dict[torch.device, int] = {}
    for device in {weight.device for _, weight, _ in rows}:
        if device.type == "cpu":
            limits[device] = MANY_OPERATIONS if many else FEW_OPERATIONS
        else:
            size = sum(weight.numel() for _, weight, _ in rows if weight.device == device)
            limits[device] = max(SMALLEST, size // SHARE) if temporaries else size
    blocks: list[Block] = []
    current: dict[tuple[object, ...], tuple[Block | None, int]] = {}
    for (slot, weight, gradient), own in zip(rows, owned, strict=True):
        setting = (slot.rho, slot.scaled, own, slot.updates, shards(slot.parameter))
        tensors = [weight, gradient]
        if slot.backup is not None:
            tensors.append(slot.backup)
        if slot.memory is not None:
            tensors.append(local(slot.memory))
        limit = limits[weight.device]
        key = (weight.device, setting, *[tensor.dtype for tensor in tensors])
        block, room = current.get(key, (None, 0))
        for piece in _cut(tensors, limit):
            elements = piece[0].numel()
            if block is None or elements > room + limit // 2:
                block, room = Block(*setting), limit
                blocks.append(block)
            room -= elements
            block.w.append(piece[0])
            block.g.append(piece[1])
            if slot.backup is not None:
                block.b.append(piece[2])
            if slot.memory is not None:
                block.m.append(piece[-1])
        current[key] = (block, room)
    return blocks


def exclusive(tensors: Sequence[Tensor]) -> list[bool]:
    """Whether no two elements of these tensors share memory, for each of them.

    Autograd gives two parameters one gradient, or one that is expanded, where it can.
    """
    alone = [_is_dense(tensor) for tensor in tensors]
    if len({tensor.untyped_storage()._cdata for tensor in tensors}) == len(tensors):
        return alone
    spans = []
    for index, tensor in enumerate(tensors):
        start = tensor.storage_offset() * tensor.element_size()
        extent = (
            tensor.numel()
            if alone[index]
            else 1
            + sum(
                stride * (size - 1)
                for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
            )
        )
        end = start + extent * tensor.element_size()
        spans.append((tensor.untyped_storage()._cdata, start, end, index))
    spans.sort()
    last = None
    for span in spans:
        if last is not None and span[0] == last[0] and span[1] < last[2]:
            alone[span[3]] = alone[last[3]] = False
        if last is None or span[0] != last[0] or span[2] > last[2]:
            last = span
    return alone


def _is_dense(tensor: Tensor) -> bool:
    if tensor.is_contiguous():
        return True
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _cut(tensors: list[Tensor], limit: int) -> Iterable[Sequence[Tensor]]:
    """Cut tensors that belong together into even pieces, where they lie in the same dense order."""
    pieces = round(tensors[0].numel() / limit)
    if pieces <= 1:
        return (tensors,)
    size = -(-tensors[0].numel() // pieces)
    if all(tensor.is_contiguous() for tensor in tensors):
        flat = [tensor.view(-1) for tensor in tensors]
    elif all(tensor.is_contiguous(memory_format=torch.channels_last) for tensor in tensors):
        flat = [tensor.permute(0, 2, 3, 1).view(-1) for tensor in tensors]
    else:
        return (tensors,)
    return zip(*(torch.split(row, size) for row in flat), strict=True)
