"""How many kernels CUDA would launch for an operation, estimated from its tensors.

The model, after `ATen/native/cuda`:

- A foreach operation on lists packs tensors into launches. A launch takes at most 320 blocks of
  65,536 elements, and at most 110, 64, 48, 36 or 30 tensors where it works on 1 to 5 lists (its
  result counts as one). Builds for CUDA 12.1 and newer may take seven times as much.
- It does so only where all tensors have one device and dtype and those of a row have one shape and
  the same strides, dense; a scalar given as a tensor must have their dtype too. Elsewhere it goes
  the slow way: one launch a tensor. `_foreach_copy_` may change the dtype.
- A norm of a list fills two buffers with zeros and ends with a launch for each 512 tensors.
- `stack` and `cat` take 128 tensors a launch. A fused optimizer packs like a foreach operation,
  but has no slow way: it refuses lists that differ, and scalars that are not float32.
- Every other operation is one launch; on a CPU, none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

CHUNK = 65_536
BLOCKS = 320
TENSORS = (110, 64, 48, 36, 30)
"""Tensors a launch by the number of lists."""
JOINED = 128
NORMS = 512

Lists = list[list[Tensor]]


def launches(operation: OpOverload, arguments: Sequence[Any], result: Any) -> tuple[int, str]:
    """Return the number of launches and, for a foreach operation on the slow way, why."""
    name = operation._schema.name.removeprefix("aten::")
    lists: Lists = [list(a) for a in arguments if _is_list(a)]
    if not name.startswith(("_foreach_", "_fused_", "_amp_foreach_")):
        tensors = [a for a in arguments if isinstance(a, Tensor)]
        touched = [*tensors, *(t for row in lists for t in row), *_flat(result)]
        if all(tensor.device.type == "cpu" for tensor in touched):
            return 0, ""
        if name in ("stack", "cat"):
            return math.ceil(len(lists[0]) / JOINED), ""
        return 1, ""
    if not lists or not lists[0] or all(t.device.type == "cpu" for row in lists for t in row):
        return 0, ""
    reduces = name in ("_foreach_norm", "_foreach_max")
    why = _slow(name, lists, arguments)
    if why:
        return len(lists[0]), why
    made = 0 if reduces or operation._schema.is_mutable else 1
    count = packed([tensor.numel() for tensor in lists[0]], len(lists) + made)
    if reduces:
        count += 2 + math.ceil(len(lists[0]) / NORMS)
    return count, ""


def refused(name: str, arguments: Sequence[Any], settings: Mapping[str, Any]) -> str:
    """Return why CUDA would refuse a fused operation; empty if it would not."""
    lists: Lists = [list(a) for a in arguments if _is_list(a)]
    if not lists or all(t.device.type == "cpu" for row in lists for t in row):
        return ""
    why = _slow(name, lists, ())
    if why:
        return why
    for scalar in (*arguments, *settings.values()):
        if not isinstance(scalar, Tensor) or scalar.device.type == "cpu":
            continue
        if scalar.device != lists[0][0].device:
            return f"a scalar is on {scalar.device}"
        if scalar.dtype != torch.float32:
            return f"a scalar is {_short(scalar.dtype)}"
    return ""


def packed(sizes: Sequence[int], lists: int) -> int:
    """Return the number of launches into which tensors of these sizes are packed."""
    most = TENSORS[min(lists, len(TENSORS)) - 1]
    count = tensors = blocks = 0
    for size in sizes:
        if size == 0:
            continue
        tensors += 1
        chunks = math.ceil(size / CHUNK)
        for chunk in range(chunks):
            blocks += 1
            last = chunk == chunks - 1
            if blocks == BLOCKS or (last and tensors == most):
                count += 1
                blocks, tensors = 0, 0 if last else 1
    return count + (blocks > 0)


def _slow(name: str, lists: Lists, arguments: Sequence[Any]) -> str:
    """Return why a foreach operation goes tensor by tensor; empty if it does not."""
    first = lists[0][0]
    copies = name == "_foreach_copy_"
    for row in lists:
        dtype = row[0].dtype if copies else first.dtype
        if any(tensor.dtype != dtype for tensor in row):
            return "dtypes differ"
        if any(tensor.device != first.device for tensor in row):
            return "devices differ"
    for here, *others in zip(*lists, strict=True):
        if any(t.shape != here.shape or t.stride() != here.stride() for t in others):
            return "shapes or strides differ"
        if not _dense(here):
            return "a tensor is not dense"
    if name.startswith("_foreach_"):
        for scalar in arguments:
            if not isinstance(scalar, Tensor) or scalar.device.type == "cpu":
                continue
            if scalar.dtype != first.dtype:
                return f"the scalar is {_short(scalar.dtype)}, not {_short(first.dtype)}"
    return ""


def _dense(tensor: Tensor) -> bool:
    """Return whether the elements fill a stretch of memory, in any order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], Tensor)


def _flat(result: Any) -> list[Tensor]:
    values = result if isinstance(result, (list, tuple)) else [result]
    return [value for value in values if isinstance(value, Tensor)]
