"""Weights as one flat vector: taken apart, put together, moved and brought back bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from friendly_sam._machinery.interrupts import Uninterrupted


def wide_dtype(parameters: Sequence[Tensor]) -> torch.dtype:
    """The dtype of vectors over `parameters`: the widest of theirs, and at least float32."""
    dtype = torch.float32
    for parameter in parameters:
        dtype = torch.promote_types(dtype, parameter.dtype)
    return dtype


def flatten(tensors: Sequence[Tensor], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Join tensors into one vector."""
    return torch.cat([tensor.detach().reshape(-1).to(device, dtype) for tensor in tensors])


def unflatten(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Take a vector apart into tensors of the shapes, dtypes and devices of `like`."""
    count = sum(tensor.numel() for tensor in like)
    if vector.shape != (count,):
        raise ValueError(
            f"a vector of shape ({count},) is needed, one number for each weight, not one of "
            f"shape {tuple(vector.shape)}"
        )
    pieces = torch.split(vector, [tensor.numel() for tensor in like])
    return [
        piece.view(tensor.shape).to(tensor.device, tensor.dtype)
        for piece, tensor in zip(pieces, like, strict=True)
    ]


@contextmanager
def restored(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Inside, `tensors` may be overwritten in place; on the way out they are as before.

    The values come back bit for bit and in the same storage, exceptions and Ctrl-C included.

    Example:
        >>> import torch
        >>> from friendly_sam.sharpness.vectors import restored
        >>> weight = torch.tensor([0.1, 0.2])
        >>> with restored([weight]):
        ...     _ = weight.add_(1.0)
        >>> weight
        tensor([0.1000, 0.2000])
    """
    backups = [tensor.detach().clone() for tensor in tensors]
    try:
        yield
    finally:
        with torch.no_grad(), Uninterrupted():
            for tensor, backup in zip(tensors, backups, strict=True):
                tensor.detach().copy_(backup)


@contextmanager
def moved(parameters: Sequence[Tensor], offset: Tensor | None) -> Iterator[None]:
    """Inside, the weights are w + `offset` (a flat vector); on the way out they are w."""
    if offset is None:
        yield
        return
    pieces = unflatten(offset, parameters)
    with restored(parameters):
        with torch.no_grad():
            for parameter, piece in zip(parameters, pieces, strict=True):
                parameter.detach().add_(piece)
        yield
