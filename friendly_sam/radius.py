"""Schedules of the radius, used like a learning-rate scheduler."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from friendly_sam._machinery.checks import check_count, check_number, short
from friendly_sam.optimizer import SharpnessAware


class RadiusSchedule:
    """Multiply the radius of every group by a factor of the number of steps taken.

        ρ_t = ρ_0 f(t),   t = 0, 1, 2, ...

    ρ_0 is what the groups hold when the schedule is made. The factor is set at once for t = 0,
    and each `step()`, called after the optimizer's, moves t on.

    Args:
        optimizer: whose `param_groups` are driven.
        factor: f; see the class methods for the usual ones.

    Example:
        >>> import torch
        >>> from friendly_sam import SAM, RadiusSchedule
        >>> optimizer = SAM(torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1), rho=0.2)
        >>> schedule = RadiusSchedule.linear(optimizer, factor=0.0, steps=2)
        >>> schedule.step()
        >>> optimizer.param_groups[0]["rho"]
        0.1
    """

    def __init__(self, optimizer: SharpnessAware, factor: Callable[[int], float]) -> None:
        if not isinstance(optimizer, SharpnessAware):
            raise TypeError(f"optimizer must be a SharpnessAware, not {type(optimizer).__name__}")
        if not callable(factor):
            raise TypeError(f"factor must be a function of the step, not {factor!r}")
        self.optimizer = optimizer
        self.factor = factor
        self.t = 0
        self.start = [float(group[optimizer.radius_key]) for group in optimizer.param_groups]
        self._set()

    def step(self) -> None:
        """Move on by one step."""
        self.t += 1
        self._set()

    def state_dict(self) -> dict[str, Any]:
        """The step and the radii at the start; the factor is not saved."""
        return {"t": self.t, "start": list(self.start)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from where `state_dict` was taken; what does not fit changes nothing."""
        groups = len(self.optimizer.param_groups)
        if not isinstance(state_dict, dict) or not {"t", "start"} <= state_dict.keys():
            raise ValueError('state_dict must be a dictionary with "t" and "start"')
        t, start = state_dict["t"], state_dict["start"]
        check_count('state_dict["t"]', t, at_least=0)
        if not isinstance(start, (list, tuple)) or len(start) != groups:
            raise ValueError(
                f'state_dict["start"] must be a list of {groups} radii, not {short(start)}'
            )
        for index, radius in enumerate(start):
            check_number(f'state_dict["start"][{index}]', radius, at_least=0)
        before = self.t, self.start
        self.t, self.start = t, [float(radius) for radius in start]
        try:
            self._set()
        except BaseException:
            self.t, self.start = before
            raise

    def _set(self) -> None:
        key = self.optimizer.radius_key
        try:
            factor = self.factor(self.t)
        except OverflowError:
            raise ValueError("the factor of so late a step is too large for a number") from None
        check_number(f"factor({self.t})", factor, at_least=0)
        for group in self.optimizer.param_groups[len(self.start) :]:  # added since
            self.start.append(float(group[key]))
        for group, start in zip(self.optimizer.param_groups, self.start, strict=True):
            group[key] = start * factor

    @classmethod
    def constant(cls, optimizer: SharpnessAware) -> RadiusSchedule:
        """ρ_t = ρ_0."""
        return cls(optimizer, lambda t: 1.0)

    @classmethod
    def inverse_sqrt(cls, optimizer: SharpnessAware) -> RadiusSchedule:
        """ρ_t = ρ_0 / √t with t from 1: the schedule of the paper's theorem 2."""
        return cls(optimizer, lambda t: 1 / math.sqrt(t + 1))

    @classmethod
    def linear(cls, optimizer: SharpnessAware, *, factor: float, steps: int) -> RadiusSchedule:
        """From ρ_0 in a straight line to `factor` times ρ_0 after `steps` steps, then constant."""
        check_number("factor", factor, at_least=0)
        check_count("steps", steps)
        return cls(optimizer, lambda t: 1 + (factor - 1) * min(t / steps, 1.0))

    @classmethod
    def cosine(cls, optimizer: SharpnessAware, *, factor: float, steps: int) -> RadiusSchedule:
        """From ρ_0 by half a cosine to `factor` times ρ_0 after `steps` steps, then constant."""
        check_number("factor", factor, at_least=0)
        check_count("steps", steps)
        return cls(
            optimizer,
            lambda t: factor + (1 - factor) * (1 + math.cos(math.pi * min(t / steps, 1.0))) / 2,
        )
