"""The loss on a line and on a plane through the weights, and between two sets of weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from friendly_sam.sharpness.lanczos import Progress
from friendly_sam.sharpness.objective import Objective
from friendly_sam.sharpness.vectors import restored


@dataclass(frozen=True)
class Line:
    """L(w + x d) for several x."""

    x: tuple[float, ...]
    losses: tuple[float, ...]
    normalisation: str
    """What BatchNorm did."""


@dataclass(frozen=True)
class Plane:
    """L(w + x d + y e): row i, column j belongs to y[i], x[j]."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    losses: tuple[tuple[float, ...], ...]
    normalisation: str
    """What BatchNorm did."""


def line(
    objective: Objective,
    direction: Tensor,
    at: Sequence[float],
    *,
    progress: Progress | None = None,
) -> Line:
    """Measure the loss along a direction: random, SAM's or F-SAM's ε, an eigenvector, anything.

    Args:
        objective: L.
        direction: d, a vector over the weights. See `random_directions`, `step_along`,
            `noise_direction`, and `Eigenpairs.vectors`.
        at: the x to look at.
        progress: called with (points done, of all).

    Example:
        >>> import torch
        >>> from friendly_sam.sharpness import Objective, line, random_directions
        >>> model = torch.nn.Linear(3, 2)
        >>> data = [(torch.randn(8, 3), torch.randint(2, (8,)))]
        >>> objective = Objective(model, torch.nn.functional.cross_entropy, data)
        >>> found = line(objective, random_directions(objective, 1)[0], [-1.0, 0.0, 1.0])
        >>> found.losses[1] == objective.loss()
        True
    """
    losses = []
    for done, x in enumerate(at, start=1):
        losses.append(objective.loss(x * direction))
        if progress is not None:
            progress(done, len(at))
    return Line(tuple(at), tuple(losses), objective.normalisation)


def plane(
    objective: Objective,
    first: Tensor,
    second: Tensor,
    x: Sequence[float],
    y: Sequence[float],
    *,
    progress: Progress | None = None,
) -> Plane:
    """Measure the loss on the plane that two directions span (Li et al., 2018)."""
    rows = []
    for i, b in enumerate(y):
        row = []
        for j, a in enumerate(x):
            row.append(objective.loss(a * first + b * second))
            if progress is not None:
                progress(i * len(x) + j + 1, len(x) * len(y))
        rows.append(tuple(row))
    return Plane(tuple(x), tuple(y), tuple(rows), objective.normalisation)


def between(
    objective: Objective,
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    at: Sequence[float],
    *,
    progress: Progress | None = None,
) -> Line:
    """Measure the loss on the straight line between two checkpoints of the objective's model.

    At x the model holds (1 - x) `first` + x `second`: weights and floating-point buffers
    (BatchNorm's running statistics; a variance stays positive for x in [0, 1]). Other buffers are
    those of `first`. Afterwards the model is as it was, bit for bit.

    Args:
        objective: L.
        first: a `state_dict` of the model.
        second: another.
        at: the x to look at; 0 is `first`, 1 is `second`.
        progress: called with (points done, of all).
    """
    state = objective.model.state_dict()
    for name, other in (("first", first), ("second", second)):
        if other.keys() != state.keys():
            odd = sorted(state.keys() ^ other.keys())[0]
            raise ValueError(f"{name} is no state_dict of this model: they differ in {odd!r}")
    tensors = [value for value in state.values() if isinstance(value, Tensor)]
    names = [name for name, value in state.items() if isinstance(value, Tensor)]
    losses = []
    with restored(tensors):
        for done, x in enumerate(at, start=1):
            for name, tensor in zip(names, tensors, strict=True):
                _blend(tensor, first[name], second[name], x)
            losses.append(objective.loss())
            if progress is not None:
                progress(done, len(at))
    return Line(tuple(at), tuple(losses), objective.normalisation)


@torch.no_grad()
def _blend(target: Tensor, first: Tensor, second: Tensor, x: float) -> None:
    start = first.to(target.device)
    if target.is_floating_point():
        # Not lerp: its ends would not be exact.
        target.copy_((1 - x) * start + x * second.to(target.device))
    else:
        target.copy_(start)
