"""The loss around the weights of a recorded run: rises, slices; kept beside its records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from friendly_sam.lab.records.measured_once import measured_once
from friendly_sam.lab.records.run import read_run
from friendly_sam.lab.sharpness.kept import LANDSCAPE
from friendly_sam.lab.sharpness.subject import fingerprint, last_weights, subject
from friendly_sam.lab.training.checkpoints import load_weights
from friendly_sam.sharpness import (
    between,
    line,
    loss_rises,
    plane,
    random_directions,
    step_along,
    worst_rise,
)
from friendly_sam.sharpness.lanczos import Progress
from friendly_sam.sharpness.modes import Mode

FORMAT = 2
SEED = 11
"""Of the random directions; the same for every run, so that runs are compared along the same."""


def landscape(
    run_folder: Path,
    *,
    rho: float,
    data_size: int = 2000,
    grid: int = 11,
    extent: float = 1.0,
    mode: Mode = "evaluation",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Look at the loss around a run's last weights; kept as `landscape.json` in its folder.

    Args:
        run_folder: the run.
        rho: the radius of the rises, and the unit of the slice along SAM's step.
        data_size: training images, see `subject`.
        grid: points a side of the plane; a line has 2 grid - 1.
        extent: how far the filter-normalised directions are followed, to either side.
        mode: what BatchNorm does.
        progress: hears of the points of the slices.

    Returns:
        `rises` by direction, `worst`, `random` and `ascent` (lines), `plane`.
    """
    settings: dict[str, Any] = {
        "format": FORMAT,
        "rho": rho,
        "data_size": data_size,
        "grid": grid,
        "extent": extent,
        "mode": mode,
    }
    key = {"settings": settings, "checkpoint": fingerprint(run_folder)}
    return measured_once(
        run_folder / "landscape.json",
        key,
        lambda: _measure(run_folder, settings, progress),
        LANDSCAPE,
    )


def _measure(
    run_folder: Path, settings: dict[str, Any], progress: Progress | None
) -> dict[str, Any]:
    rho, grid, extent = settings["rho"], settings["grid"], settings["extent"]
    examined = subject(run_folder, data_size=settings["data_size"], mode=settings["mode"])
    objective = examined.objective
    first, second = random_directions(objective, 2, seed=SEED)
    fine, coarse = _places(extent, 2 * grid - 1), _places(extent, grid)
    ascent = step_along(objective.gradient(), rho)
    # Batch directions are those of training: of batches as large as the run's.
    cut = rebatched(examined.batches, examined.config.data.batch_size)
    rises = loss_rises(objective.over(cut), rho, seed=SEED)
    return {
        "rises": {name: {"mean": rise.mean, "n": len(rise.values)} for name, rise in rises.items()},
        "worst": worst_rise(objective, rho, steps=5),
        "random": asdict(line(objective, first, fine)),
        "ascent": asdict(line(objective, ascent, _places(3.0, 2 * grid - 1))),
        "plane": asdict(plane(objective, first, second, coarse, coarse, progress=progress)),
        "normalisation": objective.normalisation,
    }


def path_between(first: Path, second: Path, *, data_size: int = 2000) -> dict[str, Any] | None:
    """Measure the loss on the straight line between the last weights of two runs.

    The images are those of the first run. `None` where the runs train different networks.
    """
    if read_run(first).config.model.name != read_run(second).config.model.name:
        return None
    examined = subject(first, data_size=data_size)
    start, end = (load_weights(str(last_weights(folder))) for folder in (first, second))
    if any(start[name].shape != end[name].shape for name in start.keys() & end.keys()):
        return None
    return asdict(between(examined.objective, start, end, _places(0.5, 13, centre=0.5)))


def rebatched(batches: Sequence[tuple[Tensor, Tensor]], size: int) -> list[tuple[Tensor, Tensor]]:
    """Cut the same samples, in a fixed random order, into batches of `size`."""
    images = torch.cat([batch[0] for batch in batches])
    labels = torch.cat([batch[1] for batch in batches])
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(SEED))
    rows = [part.to(images.device) for part in torch.split(order, size)]
    return [(images[part], labels[part]) for part in rows]


def _places(extent: float, count: int, *, centre: float = 0.0) -> Sequence[float]:
    return [centre + extent * (2 * i / (count - 1) - 1) for i in range(count)]
