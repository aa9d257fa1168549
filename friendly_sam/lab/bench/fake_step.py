"""One whole step on fake tensors: gradients at w, perturbation, gradients there, base step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Size, Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import Parameter

from friendly_sam import SharpnessAware
from friendly_sam.lab.bench.counting import Counter

WARM_UP = 1
"""Steps before the one that is counted: after the first one state and buffers are there."""

Step = Callable[[], None]


@dataclass(frozen=True)
class Count:
    """What one step takes."""

    operations: int
    launches: int
    synchronisations: int
    copies: float
    """The most memory at once, in copies of the parameters, beyond weights, one set of gradients
    and the momentum of the base optimizer."""
    names: Mapping[str, int]
    """The operations by name."""
    waits: Sequence[str]
    """What synchronised, and where."""
    races: Sequence[str]
    """Copies to the host for which nobody waited."""
    slow: Mapping[str, str]
    """Foreach operations that went tensor by tensor, and why."""


@contextmanager
def fake_parameters(
    sizes: Sequence[Size],
    *,
    dtype: torch.dtype = torch.float32,
    devices: Sequence[str] = ("cuda:0",),
) -> Iterator[list[Parameter]]:
    """Return parameters of these shapes, laid out over the devices one after the other."""
    with FakeTensorMode(), torch.no_grad():
        yield [
            Parameter(
                torch.empty(size, dtype=dtype, device=devices[i * len(devices) // len(sizes)])
            )
            for i, size in enumerate(sizes)
        ]


def base_of(parameters: Sequence[Parameter]) -> torch.optim.SGD:
    """Return the base optimizer of every count: three foreach operations."""
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=True)


def give_gradients(parameters: Sequence[Parameter]) -> None:
    """Do as a backward pass would: fresh gradients of every parameter."""
    for parameter in parameters:
        parameter.grad = torch.empty_like(parameter)


def step_of(optimizer: SharpnessAware, **options: Any) -> Step:
    """Return a step of this library, taken by hand; `options` are those of `perturbed`."""
    parameters: list[Any] = [p for group in optimizer.param_groups for p in group["params"]]
    two_passes = optimizer.direction.starts_from == "gradient"

    def step() -> None:
        if two_passes:
            give_gradients(parameters)
        if optimizer.ascent_due:
            with optimizer.perturbed(**options):
                give_gradients(parameters)
        else:
            if not two_passes:
                give_gradients(parameters)
            optimizer.skip(**options)
        optimizer.step()
        optimizer.zero_grad()

    return step


def promised(optimizer: SharpnessAware) -> int:
    """Return the copies of the parameters that the components of an optimizer say they keep."""
    direction, descent = optimizer.direction, optimizer.descent
    return (
        1  # w, while the weights are away
        + direction.keeps_ema
        + (direction.starts_from == "previous")
        + descent.needs_gradient
        + descent.keeps_component
    )


def count(
    step: Step, parameters: Sequence[Tensor], *, warm_up: int = WARM_UP, number: float = 1.0
) -> Count:
    """Count what a step takes once `warm_up` of them are done.

    Args:
        step: the step.
        parameters: what it trains.
        warm_up: how many steps are taken before.
        number: what a host that reads a number is told.
    """
    size = sum(parameter.nbytes for parameter in parameters)
    with Counter(number) as counter:
        counter.watch(parameters)
        for _ in range(warm_up):
            step()
        counter.restart()
        step()
    return Count(
        operations=counter.operations.total(),
        launches=counter.launches,
        synchronisations=len(counter.waits),
        copies=counter.peak / size - 3,
        names=dict(counter.operations.most_common()),
        waits=tuple(counter.waits),
        races=tuple(counter.races),
        slow=dict(counter.slow),
    )
