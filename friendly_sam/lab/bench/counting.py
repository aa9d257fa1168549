"""Operations, launches, synchronisations and memory of code that runs on fake tensors.

Under `FakeTensorMode` tensors have a device, a dtype and a shape and no memory, so that a step on
an accelerator can be looked at where there is none. `Counter` sees every operation of it.

What counts as an *operation*: every call of the dispatcher to `aten`, a foreach call on whole
lists being one, but for

- views and what only looks at metadata (`select`, `view`, `unbind`, `promote_types`, ...),
- memory that is taken and not written (`empty` and its like),
- reads by the host, which are counted as synchronisations.

By this rule a step of the first edition's SAM had 27 operations on ResNet-18, SGD's three with it.

A *synchronisation* is whatever makes the host wait for the device: `item()` and its like, shapes
that depend on values, copies between device and host that block. A copy to the host that does not
block is a *race*: torch copies into pinned memory then, and the host reads what is not there yet.
"""

# mypy: allow-untyped-calls
# (the modes of torch have no types)

from __future__ import annotations

import traceback
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from friendly_sam.lab.bench.launches import launches, refused

aten = torch.ops.aten
ALLOCATIONS = ("empty", "new_empty", "empty_like", "empty_strided", "new_empty_strided", "resize_")
READS = ("_local_scalar_dense", "item", "is_nonzero", "equal")
"""Operations that tell the host a value."""
SHAPES = ("nonzero", "masked_select", "_unique2", "unique_dim", "bincount")
"""Operations whose result has a shape that depends on values."""
COPIES = ("_to_copy", "copy_", "_foreach_copy_")
PACKAGE = Path(__file__).resolve().parents[2]


class Counter(TorchDispatchMode):
    """Counts what is done inside it; must be entered inside a `FakeTensorMode`.

    Args:
        number: what the host is told when it reads a number that nobody has; whether something
            is true, it always is.
    """

    def __init__(self, number: float = 1.0) -> None:
        super().__init__()
        self.number = number
        self.operations: Tally[str] = Tally()
        self.launches = 0
        self.waits: list[str] = []
        """What made the host wait, and the line of this package that asked for it."""
        self.races: list[str] = []
        """Copies to the host for which nobody waits."""
        self.slow: dict[str, str] = {}
        """Foreach operations that went tensor by tensor, and why."""
        self.peak = 0
        """The most bytes that lived at once."""
        self._alive: dict[StorageWeakRef, int] = {}
        self._at_most = 0
        """The bytes of `_alive`, of which some may be gone."""
        self._bindings = _Bindings()

    def __enter__(self) -> Counter:
        self._bindings.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._bindings.__exit__(*error)

    def restart(self) -> None:
        """Forget what was counted, but not which tensors live."""
        self.operations.clear()
        self.launches, self.peak = 0, self.live()
        self.waits.clear()
        self.races.clear()
        self.slow.clear()

    def watch(self, tensors: Iterable[Tensor]) -> None:
        """Count the memory of tensors that were made outside."""
        self._note(tensors)

    def live(self) -> int:
        """Return the bytes of all tensors that are alive."""
        for reference in [r for r in self._alive if r.expired()]:
            self._at_most -= self._alive.pop(reference)
        return self._at_most

    def wait(self, what: str) -> None:
        """Note that the host waits for the device."""
        self.waits.append(f"{what} at {_place()}")

    def __torch_dispatch__(
        self,
        operation: OpOverload,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        space, _, name = operation._schema.name.partition("::")
        if space != "aten":
            return operation(*args, **kwargs)
        if name in READS:
            if _on_device(args):
                self.wait(name)
            return self._told(name, args)
        if name in SHAPES or (name == "index" and _masks(args[1])):
            if _on_device(args):
                self.wait(name)
            result = _empty_result(name, args)
        else:
            self._look_for_copies(name, args, kwargs)
            result = self._run(operation, name, args, kwargs)
        made = _tensors(result)
        if operation.is_view or torch.Tag.inplace_view in operation.tags:
            return result
        if not made and not operation._schema.is_mutable:
            return result  # it looked at metadata
        if name not in ALLOCATIONS:
            self.operations[name + _overload(operation)] += 1
            count, why = launches(operation, args, result)
            self.launches += count
            if why:
                self.slow[name + _overload(operation)] = f"{why}, at {_place()}"
        self._note(made)
        if self._at_most > self.peak:
            self.peak = max(self.peak, self.live())
        return result

    def _run(
        self, operation: OpOverload, name: str, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        if not name.startswith("_fused_"):
            return operation(*args, **kwargs)
        # Fake tensors have no fused optimizers, which only change what is there.
        why = refused(name, args, kwargs)
        if why:
            raise RuntimeError(f"CUDA refuses {name} here: {why} ({_place()})")
        return None

    def _told(self, name: str, args: Sequence[Any]) -> Any:
        dtype = args[0].dtype
        if dtype == torch.bool or name in ("is_nonzero", "equal"):
            return True
        return float(self.number) if dtype.is_floating_point else int(self.number)

    def _look_for_copies(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        if name not in COPIES:
            return
        blocking = not (kwargs.get("non_blocking") or (len(args) > 2 and args[2]))
        if name == "_to_copy":
            pairs = [(args[0], kwargs.get("device") or args[0].device)]
        elif name == "copy_":
            pairs = [(args[1], args[0].device)]
        else:
            pairs = [(s, t.device) for t, s in zip(args[0], args[1], strict=True)]
        for source, target in pairs:
            if (source.device.type == "cpu") == (target.type == "cpu"):
                continue
            what = f"copy from {source.device.type} to {target.type}"
            if blocking:
                self.wait(what)
            elif target.type == "cpu":
                self.races.append(f"{what} at {_place()}")

    def _note(self, tensors: Iterable[Tensor]) -> None:
        """Remember the memory of tensors."""
        for tensor in tensors:
            storage = tensor.untyped_storage()
            reference = StorageWeakRef(storage)
            if reference not in self._alive:
                self._alive[reference] = storage.nbytes()
                self._at_most += storage.nbytes()


DIRECT: dict[Any, Callable[..., Any]] = {
    torch.Tensor.copy_: aten.copy_,
    torch.Tensor.nonzero: aten.nonzero,
    torch.Tensor.__invert__: aten.bitwise_not,
    torch.Tensor.__float__: lambda tensor: float(tensor.item()),
    torch.Tensor.__int__: lambda tensor: int(tensor.item()),
}
"""Methods whose binding asks for a guard of the device, and what they do."""


class _Bindings(TorchFunctionMode):
    """Sends to the dispatcher what torch's bindings refuse where torch is built without CUDA."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.Tensor.to and args[0].device.type == "cpu":
            return self._to(*args, **kwargs)
        if func in DIRECT:
            return DIRECT[func](*args, **kwargs)
        if func is torch.Tensor.__getitem__ and args[0].device.type != "cpu":
            return _indexed(*args)
        return func(*args, **kwargs)

    def _to(self, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        known = {k: v for k, v in kwargs.items() if k in ("device", "dtype", "non_blocking")}
        device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args, **known)
        if device is None or device.type == "cpu":
            return tensor.to(*args, **kwargs)
        here = torch.device(device.type, device.index or 0)
        moved: Tensor = aten._to_copy(
            tensor, device=here, dtype=dtype or tensor.dtype, non_blocking=non_blocking
        )
        return moved


def _indexed(tensor: Tensor, index: Any) -> Tensor:
    """Return `tensor[index]` for whole numbers and slices, through the dispatcher."""
    dimension = 0
    for part in index if isinstance(index, tuple) else (index,):
        if isinstance(part, int):
            tensor = tensor.select(dimension, part)
        elif isinstance(part, slice):
            tensor = aten.slice(tensor, dimension, part.start, part.stop, part.step or 1)
            dimension += 1
        elif isinstance(part, Tensor):
            chosen: Tensor = aten.index(tensor, [None] * dimension + [part])
            return chosen
        else:
            raise TypeError(f"index {part!r} is not counted")
    return tensor


def _masks(indices: Sequence[Any]) -> bool:
    return any(isinstance(i, Tensor) and i.dtype in (torch.bool, torch.uint8) for i in indices)


def _empty_result(name: str, args: Sequence[Any]) -> Any:
    tensor: Tensor = args[0]
    if name == "nonzero":
        return tensor.new_empty((0, tensor.dim()), dtype=torch.int64)
    return tensor.new_empty(0)


def _tensors(result: Any) -> list[Tensor]:
    values = result if isinstance(result, (list, tuple)) else [result]
    return [value for value in values if isinstance(value, Tensor)]


def _on_device(args: Sequence[Any]) -> bool:
    return any(isinstance(a, Tensor) and a.device.type != "cpu" for a in args)


def _overload(operation: OpOverload) -> str:
    name = operation._overloadname
    return "" if name == "default" else f".{name}"


def _place() -> str:
    """Return the innermost line of this package, outside the benchmarks, that is being run."""
    for frame in reversed(traceback.extract_stack()):
        path = Path(frame.filename)
        if PACKAGE in path.parents and "bench" not in path.parts:
            return f"{path.relative_to(PACKAGE)}:{frame.lineno}"
    return "another place"
