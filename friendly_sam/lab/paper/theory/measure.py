"""Run the three measurements at a scale, each kept as soon as it is complete."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from friendly_sam.lab.errors import LabError
from friendly_sam.lab.files import make_folder, write_atomically
from friendly_sam.lab.paper.theory import lemma1, theorem1, theorem2
from friendly_sam.lab.paper.theory.problem import Problem
from friendly_sam.lab.records.measured_once import measured_once

FORMAT = 2
"""Raised when a measurement changes, so that an older file is not taken for a newer one."""


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    rates: tuple[float, ...]
    """Learning rates of theorem 1."""
    rate_seeds: int
    fixed_steps: int
    """Steps at fixed weights, lemma 1."""
    run_steps: int
    lemma_seeds: int
    horizons: tuple[int, ...]
    """T of theorem 2."""
    horizon_seeds: int


SCALES = {
    "mini": Scale((0.1, 0.03, 0.01, 0.003, 0.001), 5, 500, 240, 10, (64, 256, 1024, 4096), 4),
    "small": Scale(
        (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003), 12, 1000, 240, 20,
        (64, 256, 1024, 4096, 16384), 10,
    ),
    "paper": Scale(
        (0.1, 0.03, 0.01, 0.003, 0.001, 0.0003, 0.0001), 20, 2000, 240, 50,
        (64, 256, 1024, 4096, 16384, 65536), 20,
    ),
}  # fmt: skip
"""About 1, 6 and 40 minutes on one core."""


def run(folder: Path, *, scale: str, progress: Callable[[str], None]) -> None:
    """Measure theorem 1, lemma 1 and theorem 2; leave `theory.json` in `folder`.

    A measurement that is already there at the same scale is not made again.

    Args:
        folder: where the files go; made if it is not there.
        scale: a key of `SCALES`.
        progress: hears, in words, what is under way.
    """
    if scale not in SCALES:
        raise LabError(f"scale must be one of {', '.join(SCALES)}, got {scale!r}")
    sizes = SCALES[scale]
    make_folder(folder)
    measurements: dict[str, Callable[[], dict[str, Any]]] = {
        "theorem1": lambda: theorem1.measure(sizes.rates, sizes.rate_seeds, progress),
        "lemma1": lambda: lemma1.measure(
            sizes.fixed_steps, sizes.run_steps, sizes.lemma_seeds, progress
        ),
        "theorem2": lambda: theorem2.measure(sizes.horizons, sizes.horizon_seeds, progress),
    }
    key = json.loads(json.dumps({"format": FORMAT, "scale": scale, "sizes": asdict(sizes)}))
    data: dict[str, Any] = {}
    for name, measure in measurements.items():
        data[name] = _measured_once(folder / f"{name}.json", key, measure)
    problem = Problem()
    judges = ((theorem1, "theorem1"), (lemma1, "lemma1"), (theorem2, "theorem2"))
    result = {
        "key": key,
        "claims": [claim for judge, name in judges for claim in judge.claims(data[name])],
        "tables": [judge.table(data[name]) for judge, name in judges],
        "data": data,
        "problem": {
            "dimension": problem.dimension,
            "samples": problem.samples,
            "batch": problem.batch,
            "beta": problem.beta,
            "M": problem.variance,
            "G": problem.bound,
            "gap": problem.gap,
        },
    }
    write_atomically(folder / "theory.json", json.dumps(result, indent=1) + "\n")


def _measured_once(
    path: Path, key: dict[str, Any], measure: Callable[[], dict[str, Any]]
) -> dict[str, Any]:
    return dict(measured_once(path, {"key": key}, lambda: {"data": measure()})["data"])
