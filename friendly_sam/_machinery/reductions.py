"""Sums over all parameters together: norms and inner products, in float64, over shards too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from friendly_sam._machinery.blocks import Block, Shards
from friendly_sam._machinery.tensors import Scalar, Tensors

_LARGE = 2**13
"""Elements from which a call of its own for a tensor is worth it."""

_SIDE_BY_SIDE = 2**16
"""Elements that one sum may take in: in float32 the error of a longer one grows with it."""

_SAFE = 1e-24, 1e37
"""Sums of float32 squares between these have lost nothing to overflow or underflow."""


def squared_norm(tensors: Tensors) -> Scalar:
    """Return the sum of the squares of all elements: finite wherever all elements are.

    On a CPU it is a number of Python.
    """
    if tensors.device.type != "cpu":
        return _exact(tensors)
    if tensors.dtype not in (torch.float32, torch.float64):
        return _exact(tensors).item()
    # On a CPU <x, x> takes less than half the time of ||x||, and errs less in float32; of many
    # small tensors it takes a fifth, once they are laid side by side.
    found = 0.0
    small: list[Tensor] = []
    size = 0
    for tensor in tensors:
        flat = _flat(tensor)
        if flat is None:
            found += torch.linalg.vector_norm(tensor).item() ** 2
        elif flat.numel() >= _LARGE:
            found += _square(flat)
        else:
            small.append(flat)
            size += flat.numel()
            if size >= _SIDE_BY_SIDE:
                found += _square(torch.cat(small))
                small, size = [], 0
    if small:
        found += _square(torch.cat(small))
    if tensors.dtype == torch.float32 and not _SAFE[0] < found < _SAFE[1]:
        return _exact(tensors).item()
    return found


def inner_product(left: Tensors, right: Tensors, scratch: Tensors) -> Scalar:
    """Return the sum of the products of all elements; `scratch` is memory to work in.

    On an accelerator it is (||a + b||² - ||a||² - ||b||²) / 2, a few launches for all tensors;
    there is no foreach form of a product that sums.
    """
    if left.device.type != "cpu":
        both = squared_norm(scratch.copy_(left).add_(right))
        return (both - squared_norm(left) - squared_norm(right)) / 2
    return sum(
        torch.dot(a.reshape(-1).double(), b.reshape(-1).double()).item()
        for a, b in zip(left, right, strict=True)
    )


def total(
    blocks: Sequence[Block],
    sums: Callable[[Block], Sequence[Scalar]],
    count: int,
    sharding: Iterable[Shards] = (),
    device: torch.device | None = None,
) -> Tensor:
    """Add up `count` scalar sums over blocks and, where tensors are sharded, over processes.

    Args:
        blocks: what is summed over.
        sums: from a block its `count` scalars.
        count: how many they are, for a process that has no block.
        sharding: every way of sharding among the parameters, the same on all processes, so that
            a process that has no gradient for some of them still takes part in the reduction.
        device: where the sums are, on a process that has no block.
    """
    rows: dict[Shards, list[Sequence[Scalar]]] = {way: [] for way in sharding}
    for block in blocks:
        rows.setdefault(block.shards, []).append(sums(block))
    devices = [block.w.device for block in blocks] or [device or torch.device("cpu")]
    device = next((one for one in devices if one.type != "cpu"), devices[0])
    added = [_added(rows[way], count, device) for way in rows]
    for way, value in zip(rows, added, strict=True):
        for process_group in way:
            torch.distributed.all_reduce(value, group=process_group)
    return _sum(added) if added else torch.zeros(count, device=device)


def _added(rows: list[Sequence[Scalar]], count: int, device: torch.device) -> Tensor:
    """Add up rows of scalars: numbers of Python by the host, tensors on `device`."""
    known = [row for row in rows if isinstance(row[0], float)]
    tensors = [torch.stack(list(row)) for row in rows if isinstance(row[0], Tensor)]  # type: ignore[arg-type]
    if known or not tensors:
        totals = [sum(column) for column in zip(*known, strict=True)] or [0.0] * count
        tensors.append(
            torch.stack([torch.full((), x, dtype=_widest(device), device="cpu") for x in totals])
        )
    return _sum([one.to(device, _widest(device), non_blocking=True) for one in tensors])


def _sum(rows: list[Tensor]) -> Tensor:
    return rows[0] if len(rows) == 1 else torch.stack(rows).sum(0)


def _exact(tensors: Tensors) -> Tensor:
    norms = torch._foreach_norm(tensors, 2, dtype=_widest(tensors.device))
    return torch.stack(norms).square().sum()


def _widest(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64  # which mps does not have


def _square(flat: Tensor) -> float:
    return torch.dot(flat, flat).item()


def _flat(tensor: Tensor) -> Tensor | None:
    """Return all elements in one dimension, in any order, if that needs no copy worth the name."""
    if tensor.dim() == 1:
        return tensor
    if tensor.is_contiguous():
        return tensor.view(-1)
    if tensor.is_contiguous(memory_format=torch.channels_last):
        return tensor.permute(0, 2, 3, 1).view(-1)
    return tensor.reshape(-1) if tensor.numel() < _LARGE else None
