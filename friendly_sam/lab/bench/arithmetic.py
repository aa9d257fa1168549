"""The optimizer's own arithmetic: ascent and restore beyond the base update, gradients given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import Parameter

from friendly_sam.lab.bench import optax_sam
from friendly_sam.lab.bench.floor import copies, same_pattern
from friendly_sam.lab.bench.peers import MEASURED, Contender, contenders, version
from friendly_sam.lab.bench.shapes import TITLES, draw, shapes
from friendly_sam.lab.bench.timing import Clock, clock, take_turns
from friendly_sam.lab.statistics import ratio, spread

FLOOR, FLOOR_PATTERN, OPTAX = "floor: copies", "floor: same pattern", "optax"


def measure_arithmetic(
    networks: Sequence[str],
    *,
    rounds: int,
    threads: int,
    progress: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Measure every network and method; return what the JSON holds."""
    torch.set_num_threads(threads)
    results: dict[str, Any] = {}
    for network in networks:
        results[network] = {}
        for method in MEASURED:
            progress(f"arithmetic: {TITLES[network]}, {method}")
            results[network][method] = one_network(network, method, rounds=rounds, threads=threads)
    packages = ("pytorch_optimizer", "jax", "optax")
    return {"versions": {name: version(name) for name in packages}, "networks": results}


def one_network(network: str, method: str, *, rounds: int, threads: int) -> dict[str, Any]:
    """Let everything that does `method` take turns on the shapes of a network."""
    sizes = shapes(network)
    count = sum(size.numel() for size in sizes)
    parameters = [Parameter(tensor) for tensor in draw(sizes, seed=0, scale=0.01)]
    entered = contenders(method, parameters)
    absent = {name: why for name, why in entered.items() if isinstance(why, str)}
    present = {name: one for name, one in entered.items() if isinstance(one, Contender)}
    present[FLOOR] = copies(method, count)
    present[FLOOR_PATTERN] = same_pattern(method, count)
    if method == "SAM" and not optax_sam.available():
        absent[OPTAX] = "not installed"
    elif method == "SAM":
        optax = optax_sam.OptaxSAM(sizes)
        present[OPTAX] = Contender(optax.both, optax.base)
    gradients = Gradients(parameters, draw(sizes, seed=1), clock(threads))
    parts = take_turns(
        {name: partial(gradients.time, one) for name, one in present.items()},
        rounds=rounds,
        warm_up=3,
    )
    times = {
        # optax takes the base step in both of its calls; its second time is that of the base alone.
        name: [a - b if name == OPTAX else a + b for a, b in pairs]
        for name, pairs in parts.items()
    }
    rows = {
        name: {
            "seconds": spread(values).as_dict(),
            "ascent": spread([a for a, _ in parts[name]]).as_dict(),
            "restore": spread([b for _, b in parts[name]]).as_dict(),
            "against": {
                other: ratio(values, times[other]).as_dict() for other in times if other != name
            },
        }
        for name, values in times.items()
    }
    return {
        "parameters": count,
        "tensors": len(sizes),
        "threads": threads,
        "rounds": rounds,
        "rows": rows,
        "absent": absent,
    }


class Gradients:
    """Gives gradients and times a contender; the giving is not timed."""

    def __init__(self, parameters: list[Parameter], values: list[Any], now: Clock) -> None:
        self.parameters, self.values, self.now = parameters, values, now
        self.buffers = [torch.empty_like(value) for value in values]

    def time(self, one: Contender) -> tuple[float, float]:
        """Ascent and restore, in seconds."""
        for p, buffer, value in zip(self.parameters, self.buffers, self.values, strict=True):
            p.grad = buffer.copy_(value)
        start = self.now()
        one.ascend()
        ascent = self.now() - start
        for p, buffer in zip(self.parameters, self.buffers, strict=True):
            p.grad = buffer
        start = self.now()
        one.restore()
        restore = self.now() - start
        for p in self.parameters:
            p.grad = None
        return ascent, restore
