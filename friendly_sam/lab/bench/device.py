"""`fsam bench device`: what a step asks of an accelerator, counted on fake tensors.

No accelerator is needed: see `counting` for what is counted and `launches` for the estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Size
from torch.nn import Parameter

from friendly_sam import Every
from friendly_sam.lab.bench.fake_step import (
    Step,
    base_of,
    count,
    fake_parameters,
    give_gradients,
    step_of,
)
from friendly_sam.lab.bench.peers import MEASURED, OURS, Contender, contenders, version
from friendly_sam.lab.bench.recipes import RECIPES, Recipe
from friendly_sam.lab.bench.shapes import TITLES, shapes
from friendly_sam.lab.report.tables import Table

BASE = "SGD alone"
SKIPPED = ", skipped step"
COUNTED: dict[str, tuple[Recipe, int]] = {
    **{name: (recipe, 5 if name == "LookSAM" else 1) for name, recipe in RECIPES.items()},
    f"F-SAM{SKIPPED}": (partial(RECIPES["F-SAM"], when=Every(2)), 1),
    f"LookSAM{SKIPPED}": (RECIPES["LookSAM"], 1),
}
"""What is counted: a recipe, and which of its steps."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
NETWORKS = ("resnet18", "vit_s")
OPERATIONS = {
    "resnet18": {"F-SAM": 45, "ASAM": 51},
    "vit_s": {"F-SAM": 70, "ASAM": 109},
}
"""The most operations a step may have."""

NOTE = (
    "One step, SGD with momentum (its three operations included), counted on fake CUDA tensors in "
    "float32 / bfloat16. Operations: aten calls without views and bare allocations. Launches: "
    "estimated from the tensor lists. Waits: times the host waits for the device. Copies: the most "
    "memory at once beyond weights, one set of gradients and the momentum, in copies of the "
    "parameters."
)


def measure_device(
    networks: Sequence[str], progress: Callable[[str], None] = print
) -> dict[str, Any]:
    """Count a step of every recipe and of the peers; return what the JSON holds."""
    found: dict[str, Any] = {}
    for network in networks:
        sizes = shapes(network)
        rows: dict[str, Any] = {}
        for name in (BASE, *COUNTED):
            progress(f"device: {TITLES[network]}, {name}")
            rows[name] = {kind: _ours(name, sizes, dtype) for kind, dtype in DTYPES.items()}
        absent: dict[str, str] = {}
        for method in MEASURED:
            progress(f"device: {TITLES[network]}, other code for {method}")
            peers, missing = _peers(method, sizes)
            rows |= peers
            absent |= missing
        found[network] = {
            "parameters": sum(size.numel() for size in sizes),
            "tensors": len(sizes),
            "rows": rows,
            "absent": absent,
        }
    return {"versions": {"pytorch_optimizer": version("pytorch_optimizer")}, "networks": found}


def tables(part: dict[str, Any]) -> Iterator[tuple[str, str, Table]]:
    """Return a table a network."""
    header = ["step", "operations", "launches", "waits", "copies"]
    for network, one in part["networks"].items():
        rows = [
            [
                name,
                *(
                    _cell([kinds[kind][key] for kind in DTYPES if kind in kinds], digits)
                    for key, digits in (
                        ("operations", 0),
                        ("launches", 0),
                        ("synchronisations", 0),
                        ("copies", 2),
                    )
                ),
            ]
            for name, kinds in one["rows"].items()
        ]
        title = f"A step on an accelerator: {TITLES[network]}, {one['tensors']} tensors"
        absent = "".join(f" {name}: {why}." for name, why in one["absent"].items())
        yield title, NOTE + absent, Table(header=header, rows=rows)


def _cell(values: list[float], digits: int) -> str:
    return " / ".join(f"{abs(round(value, digits)):.{digits}f}" for value in values)


def _ours(name: str, sizes: Sequence[Size], dtype: torch.dtype) -> dict[str, Any]:
    with fake_parameters(sizes, dtype=dtype) as parameters:
        base = base_of(parameters)
        if name == BASE:
            return asdict(count(_plain(base, parameters), parameters))
        recipe, warm_up = COUNTED[name]
        return asdict(count(step_of(recipe(base)), parameters, warm_up=warm_up))


def _plain(base: torch.optim.Optimizer, parameters: Sequence[Parameter]) -> Step:
    def step() -> None:
        give_gradients(parameters)
        base.step()
        base.zero_grad()

    return step


def _peers(method: str, sizes: Sequence[Size]) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Count other code for a method; what is not installed is named with the reason."""
    rows: dict[str, dict[str, Any]] = {}
    absent: dict[str, str] = {}
    with fake_parameters(sizes) as parameters:
        names = [name for name in contenders(method, parameters) if OURS not in name]
    for name in names:
        title = f"{method}: {name}"
        rows[title] = {}
        for kind, dtype in DTYPES.items():
            with fake_parameters(sizes, dtype=dtype) as parameters:
                one = contenders(method, parameters)[name]
                if isinstance(one, str):
                    absent[title] = one
                    continue
                step = _other(one, base_of(parameters), parameters)
                rows[title][kind] = asdict(count(step, parameters))
        if not rows[title]:
            del rows[title]
    return rows, absent


def _other(one: Contender, base: torch.optim.Optimizer, parameters: Sequence[Parameter]) -> Step:
    def step() -> None:
        give_gradients(parameters)
        one.ascend()
        give_gradients(parameters)
        one.restore()
        base.step()
        base.zero_grad()

    return step
