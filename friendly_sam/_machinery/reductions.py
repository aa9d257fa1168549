"""Sums over all parameters together: norms and inner products, in float64, over shards too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from friendly_sam._machinery.blocks import Block, Shards
from friendly_sam._machinery.tensors import Tensors

_LARGE = 2**13
"""Elements from which a call of its own for a tensor is worth it."""

_SIDE_BY_SIDE = 2**16
"""Elements that one sum may take in: in float32 the error of a longer one grows with it."""

_SAFE = 1e-24, 1e37
"""Sums of float32 squares between these have lost nothing to overflow or underflow."""


def squared_norm(tensors: Tensors) -> Tensor:
    """Return the sum of the squares of all elements: finite wherever all elements are."""
    if tensors.device.type != "cpu" or tensors.dtype not in (torch.float32, torch.float64):
        norms = torch._foreach_norm(tensors, 2, dtype=_widest(tensors.device))
        return torch.stack(norms).square().sum()
    # On a CPU <x, x> takes less than half the time of ||x||, and errs less in float32; of many
    # small tensors it takes a fifth, once they are laid side by side.
    parts: list[Tensor] = []
    small: list[Tensor] = []
    size = 0
    for tensor in tensors:
        flat = _flat(tensor)
        if flat is None:
            parts.append(torch.linalg.vector_norm(tensor).square())
        elif flat.numel() >= _LARGE:
            parts.append(torch.dot(flat, flat))
        else:
            small.append(flat)
            size += flat.numel()
            if size >= _SIDE_BY_SIDE:
                parts.append(_square(torch.cat(small)))
                small, size = [], 0
    if small:
        parts.append(_square(torch.cat(small)))
    found = torch.stack(parts).sum().double()
    if tensors.dtype == torch.float32 and not _SAFE[0] < found.item() < _SAFE[1]:
        wide = [torch.linalg.vector_norm(tensor, dtype=torch.float64) for tensor in tensors]
        found = torch.stack(wide).square().sum()
    return found


def inner_product(left: Tensors, right: Tensors, scratch: Tensors) -> Tensor:
    """Return the sum of the products of all elements; `scratch` is memory to work in.

    On an accelerator it is (||a + b||² - ||a||² - ||b||²) / 2, a few launches for all tensors;
    there is no foreach form of a product that sums.
    """
    if left.device.type != "cpu":
        both = squared_norm(scratch.copy_(left).add_(right))
        return (both - squared_norm(left) - squared_norm(right)) / 2
    products = [
        torch.dot(a.reshape(-1).double(), b.reshape(-1).double())
        for a, b in zip(left, right, strict=True)
    ]
    return torch.stack(products).sum()


def total(
    blocks: Sequence[Block],
    sums: Callable[[Block], tuple[Tensor, ...]],
    count: int,
    sharding: Iterable[Shards] = (),
    device: torch.device | None = None,
) -> Tensor:
    """Add up `count` scalar sums over blocks and, where tensors are sharded, over processes.

    Args:
        blocks: what is summed over.
        sums: from a block its `count` scalar tensors.
        count: how many they are, for a process that has no block.
        sharding: every way of sharding among the parameters, the same on all processes, so that
            a process that has no gradient for some of them still takes part in the reduction.
        device: where the sums are, on a process that has no block.
    """
    rows = [(block.shards, torch.stack(sums(block))) for block in blocks]
    devices = [row.device for _, row in rows] or [device or torch.device("cpu")]
    device = next((one for one in devices if one.type != "cpu"), devices[0])
    dtype = _widest(device)
    added: dict[Shards, Tensor] = {
        way: torch.zeros(count, device=device, dtype=dtype) for way in sharding
    }
    for way, row in rows:
        row = row.to(device=device, dtype=dtype, non_blocking=True)
        added[way] = added[way] + row if way in added else row
    for way, value in added.items():
        for process_group in way:
            torch.distributed.all_reduce(value, group=process_group)
    if len(added) == 1:
        return next(iter(added.values()))
    return torch.stack(list(added.values())).sum(0) if added else torch.zeros(count, device=device)


def _widest(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64  # which mps does not have


def _square(flat: Tensor) -> Tensor:
    return torch.dot(flat, flat)


def _flat(tensor: Tensor) -> Tensor | None:
    """Return all elements in one dimension, in any order, if that needs no copy worth the name."""
    if tensor.dim() == 1:
        return tensor
    if tensor.is_contiguous():
        return tensor.view(-1)
    if tensor.is_contiguous(memory_format=torch.channels_last):
        return tensor.permute(0, 2, 3, 1).view(-1)
    return tensor.reshape(-1) if tensor.numel() < _LARGE else None
