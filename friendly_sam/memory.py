"""What the wrapper keeps for each parameter: the moving average m, and w while it is away."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from friendly_sam.blocks import Climber, local
from friendly_sam.directions import Direction

AVERAGE, UPDATES = "ema", "ema_updates"
"""The names under which a parameter's average and its count stand in a `state_dict`."""


class Memory:
    """Moving averages, how many gradients each has taken in, and backups of the weights.

    Kept beside the base optimizer's state and not in it: AdamW and others initialise a
    parameter when its state is empty.
    """

    def __init__(self) -> None:
        self.averages: dict[Tensor, Tensor] = {}
        self.updates: dict[Tensor, int] = {}
        # Kept between steps: fresh memory costs a page fault for every 4 kB, each time.
        self._backups: dict[Tensor, Tensor] = {}

    def climber(
        self, parameter: Tensor, rho: float, direction: Direction, *, scaled: bool
    ) -> Climber:
        """`parameter` with its gradient, backup and, where `direction` keeps one, average."""
        assert parameter.grad is not None
        climber = Climber(parameter, parameter.grad, self._backup(parameter), rho, scaled=scaled)
        if direction.keeps_average:
            climber.average = self._average(parameter, direction)
            if direction.counts_updates:
                climber.updates = self.updates[parameter]
        return climber

    def count(self, parameters: Iterable[Tensor]) -> None:
        """Note that the averages of `parameters` have taken in a gradient."""
        for parameter in parameters:
            self.updates[parameter] += 1

    def merge_into(
        self, base_state: dict[str, Any], parameters: Sequence[Tensor]
    ) -> dict[str, Any]:
        """The `state_dict` of the base with the averages and their counts added."""
        merged = {key: dict(value) for key, value in base_state["state"].items()}
        for key, parameter in zip(_keys(base_state), parameters, strict=True):
            if parameter in self.averages:
                own = merged.setdefault(key, {})
                own[AVERAGE] = self.averages[parameter]
                own[UPDATES] = torch.tensor(self.updates[parameter])
        return {**base_state, "state": merged}

    def split_from(
        self, merged: dict[str, Any], parameters: Sequence[Tensor]
    ) -> tuple[dict[str, Any], Memory]:
        """What belongs to the base in a merged `state_dict`, and a memory with the rest.

        The averages keep the dtype they were saved in; torch would cast them to the parameter's.
        """
        keys = _keys(merged)
        if len(keys) != len(parameters):
            raise ValueError(
                f"state_dict has {len(keys)} parameters, but this optimizer has {len(parameters)}"
            )
        states, memory = dict(merged["state"]), Memory()
        for key, parameter in zip(keys, parameters, strict=True):
            own = dict(states.get(key, {}))
            average, updates = own.pop(AVERAGE, None), own.pop(UPDATES, 0)
            if average is not None:
                if average.shape != parameter.shape:
                    raise ValueError(
                        f"state_dict holds an average of shape {tuple(average.shape)} for a "
                        f"parameter of shape {tuple(parameter.shape)}"
                    )
                memory.averages[parameter] = average.detach().to(parameter.device, copy=True)
                memory.updates[parameter] = int(updates)
            if own:
                states[key] = own
            else:
                states.pop(key, None)
        memory._backups = self._backups
        return {**merged, "state": states}, memory

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_backups": {}}

    def _backup(self, parameter: Tensor) -> Tensor:
        backup, weight = self._backups.get(parameter), local(parameter)
        if backup is None or (backup.shape, backup.dtype, backup.device) != (
            weight.shape,
            weight.dtype,
            weight.device,
        ):
            backup = self._backups[parameter] = torch.empty_like(weight)
        return backup

    def _average(self, parameter: Tensor, direction: Direction) -> Tensor:
        average = self.averages.get(parameter)
        if average is None:
            average = direction.average_like(parameter.detach())
            self.averages[parameter] = average
            self.updates[parameter] = 0
        elif average.device != parameter.device:
            average = self.averages[parameter] = average.to(parameter.device)
        return average


def _keys(state_dict: dict[str, Any]) -> list[Any]:
    return [key for group in state_dict["param_groups"] for key in group["params"]]
