"""What the parameter groups of an optimizer say: radii, counters, which parameters take part."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from friendly_sam._machinery.blocks import Shards, shards
from friendly_sam._machinery.checks import check_number

CLOCK = "ascent_clock"
"""Where a group keeps the number of steps taken, which a policy looks at."""
MEAN, VARIANCE = "gradient_mean", "gradient_variance"
"""Where a group keeps what a policy remembers of ||g||²."""

_FILLED = "_radii_of_a_wrapper"


class Groups:
    """The groups of a base optimizer, with a radius and a clock in each.

    A radius that the base's group has already wins; one that an earlier wrapper put there does not.
    """

    def __init__(self, base: Optimizer, rho: float) -> None:
        self.base, self.rho = base, float(rho)
        self.key = "ascent_rho" if "rho" in base.defaults else "rho"
        filled: dict[int, float] = vars(base).get(_FILLED, {})
        for index, group in enumerate(base.param_groups):
            if index in filled and group.get(self.key) == filled[index]:
                del group[self.key]
            check_number(
                f'param_groups[{index}]["{self.key}"]', group.get(self.key, rho), at_least=0
            )
        mine = {
            index: self.rho
            for index, group in enumerate(base.param_groups)
            if self.key not in group
        }
        self.fill()
        setattr(base, _FILLED, mine)

    def fill(self) -> None:
        """Give every group a radius and a clock, also those that came since."""
        groups = self.base.param_groups
        for group in groups:
            group.setdefault(self.key, self.rho)
            group.setdefault(CLOCK, groups[0].get(CLOCK, 0))

    def radius(self, group: dict[str, Any]) -> float:
        """Return the radius of a group; somebody may have put anything there."""
        rho = group.get(self.key, self.rho)
        if type(rho) is float and 0 <= rho < math.inf:  # asked for each parameter
            return rho
        check_number(f'"{self.key}" of a parameter group', rho, at_least=0)
        return float(rho)

    @property
    def clock(self) -> int:
        """The number of steps taken."""
        return int(self.base.param_groups[0].get(CLOCK, 0)) if self.base.param_groups else 0

    def tick(self) -> None:
        """Count a step."""
        self.fill()
        for group in self.base.param_groups:
            group[CLOCK] += 1

    def members(self) -> Iterator[tuple[dict[str, Any], Tensor]]:
        """Yield each parameter once, though it may be listed twice, with its group."""
        seen: set[int] = set()
        for group in self.base.param_groups:
            for parameter in group["params"]:
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield group, parameter

    def parameters(self) -> list[Tensor]:
        """Return all parameters, in the order of torch's state dicts."""
        return [p for group in self.base.param_groups for p in group["params"]]

    def sharding(self) -> list[Shards]:
        """Return every way of sharding among the parameters."""
        ways = {shards(parameter): None for parameter in self.parameters()}
        return [way for way in ways if way]

    def only_creates_state(self) -> bool:
        """Whether every learning rate and gradient is 0.

        That is how torch.distributed.checkpoint makes an optimizer create its state before it
        saves or loads, and saving must change nothing.
        """
        for group in self.base.param_groups:
            lr = group.get("lr", 1.0)
            if (isinstance(lr, Tensor) and lr.device.type != "cpu") or float(lr) != 0:
                return False
        gradients = [p.grad for p in self.parameters() if p.grad is not None]
        return all(not torch.count_nonzero(_whole(gradient)) for gradient in gradients)


def _whole(gradient: Tensor) -> Tensor:
    local: Any = getattr(gradient, "to_local", None)
    return local() if local is not None else gradient
