"""What the wrapper keeps for each parameter: vectors such as the EMA m, and w while it is away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from friendly_sam._machinery.blocks import local
from friendly_sam._machinery.tensors import Everywhere, Scalar
from friendly_sam._machinery.warn import warn

EMA = "ema"
UPDATES = "ema_updates"
PREVIOUS = "previous_gradient"
COMPONENT = "ascent_component"
VECTORS = (EMA, PREVIOUS, COMPONENT)
"""The names under which vectors stand in a `state_dict`, beside the count of updates."""


class Memory:
    """Vectors of the size of the parameters, how many gradients the EMA has taken in, backups.

    Kept beside the base optimizer's state and not in it: AdamW and others initialise a
    parameter when its state is empty.
    """

    def __init__(self) -> None:
        self._vectors: dict[str, dict[Tensor, Tensor]] = {}
        self.updates: dict[Tensor, int] = {}
        """How many gradients the EMA was offered; on an accelerator some may have been skipped."""
        self._skipped: dict[torch.device, Tensor] = {}
        self._skipped_before: dict[Tensor, Tensor] = {}
        # Kept between steps: fresh memory costs a page fault for every 4 kB, each time.
        self._backups: dict[Tensor, Tensor] = {}

    def tensors(self, name: str) -> dict[Tensor, Tensor]:
        """Return the vector of this name: a tensor for each parameter that has one."""
        return self._vectors.get(name, {})

    def tensor(self, name: str, parameter: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Return the part of the vector `name` that belongs to `parameter`, at first zero."""
        vector = self._vectors.setdefault(name, {})
        tensor = vector.get(parameter)
        if tensor is not None and tensor.shape != parameter.shape:
            warn(
                f"a parameter has changed its shape from {tuple(tensor.shape)} to "
                f"{tuple(parameter.shape)}: its {name} starts anew"
            )
            tensor = None
        if tensor is None:
            if dtype is not None and parameter.is_complex():
                dtype = dtype.to_complex()
            tensor = vector[parameter] = torch.zeros_like(
                parameter.detach(), dtype=dtype, memory_format=torch.preserve_format
            )
            self.updates.pop(parameter, None)
        elif tensor.device != parameter.device:
            tensor = vector[parameter] = tensor.to(parameter.device)
        return tensor

    def counts(self, parameters: Sequence[Tensor]) -> list[Scalar]:
        """Return how many gradients the EMA of each has taken in.

        On an accelerator only the device knows which gradients were finite: a count there is a
        tensor, one for all parameters with the same history.
        """
        shared: dict[tuple[object, ...], Scalar] = {}
        found = []
        for parameter in parameters:
            updates = self.updates.get(parameter, 0)
            device = parameter.device
            skipped, before = self._skipped.get(device), self._skipped_before.get(parameter)
            key = (device, updates, id(before))
            if key not in shared:
                shared[key] = updates
                if skipped is not None:
                    missed = skipped if before is None else skipped - before
                    shared[key] = updates - missed
            found.append(shared[key])
        return found

    def counted(self, parameters: Iterable[Tensor], gate: Everywhere | None) -> None:
        """Note that the EMA of `parameters` was offered a gradient; where `gate` is 1, in vain."""
        devices = set()
        for parameter in parameters:
            device = parameter.device
            if parameter not in self.updates and device in self._skipped:
                self._skipped_before[parameter] = self._skipped[device]
            self.updates[parameter] = self.updates.get(parameter, 0) + 1
            devices.add(device)
        for device in devices:
            skip = None if gate is None else gate.on(device)[0]
            if skip is not None:
                self._skipped[device] = self._skipped.get(device, 0) + skip

    def backup(self, parameter: Tensor) -> Tensor:
        """Return memory of the size and kind of `parameter`, whose content is nobody's."""
        backup, weight = self._backups.get(parameter), local(parameter)
        if backup is None or (backup.shape, backup.dtype, backup.device, backup.stride()) != (
            weight.shape,
            weight.dtype,
            weight.device,
            weight.stride(),
        ):
            backup = self._backups[parameter] = torch.empty_like(weight)
        return backup

    def forget_all_but(self, kept: dict[Tensor, tuple[str, ...]]) -> None:
        """Drop what belongs to other parameters, and to vectors that one does not keep."""
        for parameter in [p for p in self._backups if p not in kept]:
            del self._backups[parameter]
        for name, vector in self._vectors.items():
            for parameter in [p for p in vector if name not in kept.get(p, ())]:
                del vector[parameter]
                if name == EMA:
                    self.updates.pop(parameter, None)
                    self._skipped_before.pop(parameter, None)

    def merge_into(
        self, base_state: dict[str, Any], parameters: Sequence[Tensor]
    ) -> dict[str, Any]:
        """Return the `state_dict` of the base with the vectors and counts added."""
        merged = {key: dict(value) for key, value in base_state["state"].items()}
        keys = (key for group in base_state["param_groups"] for key in group["params"])
        for key, parameter in zip(keys, parameters, strict=True):
            own = {name: v[parameter] for name, v in self._vectors.items() if parameter in v}
            if EMA in own:
                (count,) = self.counts([parameter])
                own[UPDATES] = torch.tensor(int(count), device="cpu")
            if own:
                merged.setdefault(key, {}).update(own)
        return {**base_state, "state": merged}

    def replace(self, vectors: dict[str, dict[Tensor, Tensor]], updates: dict[Tensor, int]) -> None:
        """Take vectors and counts that were loaded."""
        self._vectors = {
            name: {
                parameter: tensor.detach().to(parameter.device, copy=True)
                for parameter, tensor in vector.items()
            }
            for name, vector in vectors.items()
        }
        self.updates, self._skipped, self._skipped_before = dict(updates), {}, {}
        self._backups = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_backups": {}}
