"""On which steps the weights are perturbed: `method.every`, `method.start`, `method.probability`.

At most one of them is given. A run without any perturbs on the steps of the method's own policy,
which is every step for all but LookSAM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from friendly_sam import Every, From, Policy, Randomly
from friendly_sam.lab.config.methods import METHODS
from friendly_sam.lab.errors import LabError

if TYPE_CHECKING:
    from friendly_sam.lab.config.schema import MethodConfig


def complete_policy(method: MethodConfig) -> dict[str, int]:
    """Return the period that a method uses; refuse policies that exclude each other."""
    entry = METHODS[method.name]
    every = entry.every.default if method.every is None else method.every
    given = {"every": None if every == 1 else every}
    given |= {"start": method.start, "probability": method.probability}
    named = [f"method.{name}={value:g}" for name, value in given.items() if value is not None]
    if named and not entry.components:
        raise LabError(f"{named[0]} does not apply to method {method.name}; leave it out")
    if len(named) > 1:
        raise LabError(f"{' and '.join(named)} exclude each other: give one of them")
    return {"every": every}


def policy(method: MethodConfig, *, steps: int, seed: int) -> Policy:
    """Return the policy of a resolved method, in a run of so many steps."""
    if method.start is not None:
        return From(first_step(method.start, steps))
    if method.probability is not None:
        return Randomly(method.probability, seed)
    return Every(method.every or 1)


def first_step(start: float, steps: int) -> int:
    """Return the first step that is perturbed; below 1, `start` is a share of all steps."""
    return round(start * steps) if start < 1 else int(start)


def perturbed_share(method: MethodConfig, steps: int) -> float:
    """Return the share of steps on which the weights are perturbed."""
    if method.start is not None:
        return max(0.0, 1 - first_step(method.start, steps) / steps)
    if method.probability is not None:
        return method.probability
    return 1 / (method.every or METHODS[method.name].every.default)
