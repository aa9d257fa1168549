"""Cost of the ascent against the number of parameters and of tensors, and how fast it grows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Size
from torch.nn import Parameter

from friendly_sam import FriendlySAM
from friendly_sam.lab.bench.arithmetic import Gradients
from friendly_sam.lab.bench.peers import RHO, library
from friendly_sam.lab.bench.shapes import draw
from friendly_sam.lab.bench.timing import clock, take_turns
from friendly_sam.lab.statistics import log_slope, spread

PARAMETERS = tuple(round(10 ** (k / 2)) for k in range(8, 17))
"""1e4 to 1e8, in 50 tensors."""
TENSORS = (10, 30, 100, 300, 1000, 3000, 5000)
"""With 5 million parameters altogether."""


def measure_sizes(
    *,
    rounds: int,
    threads: int,
    parameters: Sequence[int] = PARAMETERS,
    tensors: Sequence[int] = TENSORS,
    progress: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Measure F-SAM's ascent and restore over sizes; return what the JSON holds."""
    torch.set_num_threads(threads)
    total = min(5_000_000, max(parameters))
    progress(f"scaling: {len(parameters)} numbers of parameters")
    by_parameters = over([(count, min(50, count)) for count in parameters], rounds, threads)
    progress(f"scaling: {len(tensors)} numbers of tensors")
    by_tensors = over([(total, count) for count in tensors], rounds, threads)
    return {
        "threads": threads,
        "rounds": rounds,
        "parameters": curve(parameters, by_parameters),
        "tensors": {**curve(tensors, by_tensors), "parameters": total},
    }


def over(settings: Sequence[tuple[int, int]], rounds: int, threads: int) -> list[list[float]]:
    """The times of ascent and restore for each (parameters, tensors); all take turns."""
    turns = {}
    for place, (count, tensors) in enumerate(settings):
        sizes = [Size([count // tensors + (i < count % tensors)]) for i in range(tensors)]
        weights = [Parameter(tensor) for tensor in draw(sizes, seed=0, scale=0.01)]
        gradients = Gradients(weights, draw(sizes, seed=1), clock(threads))
        contender = library(FriendlySAM(torch.optim.SGD(weights, lr=0.1), RHO))
        turns[str(place)] = partial(_repeated, gradients, contender, max(1, 100_000 // count))
    times = take_turns(turns, rounds=rounds, warm_up=2)
    return [times[str(place)] for place in range(len(settings))]


def _repeated(gradients: Gradients, contender: Any, repeats: int) -> float:
    """A mean over several goes, where one is too short for the clock."""
    return sum(sum(gradients.time(contender)) for _ in range(repeats)) / repeats


def curve(x: Sequence[int], times: Sequence[Sequence[float]]) -> dict[str, Any]:
    """The points, and the slopes on logarithmic axes."""
    points = [spread(values) for values in times]
    medians = [point.median for point in points]
    return {
        "x": list(x),
        "seconds": [point.as_dict() for point in points],
        "slope": log_slope(x, medians),
        "upper_slope": log_slope(x[len(x) // 2 :], medians[len(x) // 2 :]),
    }
