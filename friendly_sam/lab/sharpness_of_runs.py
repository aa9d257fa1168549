"""The Hessian spectrum of a recorded run: measured once, kept beside its records."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from friendly_sam.lab.checkpoint import Checkpoints, load_weights
from friendly_sam.lab.config import RunConfig
from friendly_sam.lab.data import Batches, ImageData, Split
from friendly_sam.lab.distributed import World, choose_device
from friendly_sam.lab.errors import LabError, RunError
from friendly_sam.lab.files import write_atomically
from friendly_sam.lab.parts import build_model, load_data
from friendly_sam.lab.records import read_run
from friendly_sam.sharpness import Objective, hessian_trace, spectral_density, top_eigenpairs
from friendly_sam.sharpness.lanczos import Progress
from friendly_sam.sharpness.modes import Mode

FORMAT = 1
"""Raised when the measurement changes, so that an older file is not taken for a newer one."""
BATCH = 250
SUBSET_SEED = 20240617


@dataclass(frozen=True)
class Subject:
    """A trained network and the loss over some of its training images."""

    config: RunConfig
    model: nn.Module
    objective: Objective
    batches: Sequence[tuple[Tensor, Tensor]]


def subject(
    run_folder: Path, *, data_size: int = 2000, mode: Mode = "evaluation", device: str = "auto"
) -> Subject:
    """Load the last weights of a run, and training images with the labels it was trained on.

    The images are not augmented. Where there are more than `data_size`, a fixed choice of them is
    taken, the same for every run on the same data.
    """
    if data_size < 1:
        raise ValueError(f"data_size must be at least 1, not {data_size}")
    config, path = read_run(run_folder).config, last_weights(run_folder)
    here = World(device=choose_device(device))
    data = load_data(config)
    model = build_model(config, data, here)
    try:
        model.load_state_dict(load_weights(str(path)))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise LabError(f"{path} does not fit {config.model.name}: {reason}") from error
    batches = _batches(data, data_size, here, channels_last=config.engine.channels_last)
    try:
        objective = Objective(model, F.cross_entropy, batches, mode=mode)
    except ValueError as error:
        raise RunError(f"{run_folder}: {error}") from error
    return Subject(config, model, objective, batches)


def measure(
    run_folder: Path,
    *,
    top: int = 5,
    data_size: int = 2000,
    tolerance: float = 1e-3,
    probes: int = 1,
    steps: int = 30,
    trace_probes: int = 10,
    mode: Mode = "evaluation",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measure the Hessian spectrum of a run's last weights.

    Kept as `sharpness.json` in the run's folder; a file made with the same settings from the same
    checkpoint is read instead of measured again.

    Args:
        run_folder: the run.
        top: how many eigenvalues; at least 5 of them are computed, for λ_1/λ_5.
        data_size: training images, see `subject`.
        tolerance: of the eigenvalues, see `top_eigenpairs`.
        probes: random vectors of the spectral density.
        steps: Lanczos steps a probe.
        trace_probes: random vectors of the trace, on top of the eigenpairs.
        mode: what BatchNorm does.
        progress: hears how many Hessian products are done, and how many there can be.

    Returns:
        `eigenvalues`, `lambda1`, `ratio` (λ_1/λ_5), `trace` and its standard error, `density`
        with `x` and `y`, and how they were measured.
    """
    settings: dict[str, Any] = {
        "format": FORMAT,
        "top": top,
        "data_size": data_size,
        "tolerance": tolerance,
        "probes": probes,
        "steps": steps,
        "trace_probes": trace_probes,
        "mode": mode,
    }
    path = run_folder / "sharpness.json"
    checkpoint = fingerprint(run_folder)
    known = kept(path, settings, checkpoint)
    if known is not None:
        return known
    examined = subject(run_folder, data_size=data_size, mode=mode)
    objective = examined.objective
    count = min(max(top, 5), objective.dimension)
    limit = 400
    found = top_eigenpairs(
        objective,
        count,
        tolerance=tolerance,
        max_products=limit,
        progress=progress,
    )

    used, rest = found.products, probes * steps + trace_probes

    def after(done: int, _: int) -> None:
        if progress is not None:
            progress(used + done, found.products + rest)

    density = spectral_density(objective, steps=steps, probes=probes, points=512, progress=after)
    used += density.products
    trace = hessian_trace(objective, probes=trace_probes, known=found, progress=after)
    result = {
        "settings": settings,
        "checkpoint": checkpoint,
        "eigenvalues": found.values[:top].tolist(),
        "lambda1": found.sharpness,
        "ratio": found.ratio,
        "converged": found.converged,
        "residuals": found.residuals[:top].tolist(),
        "trace": trace.value,
        "trace_standard_error": trace.standard_error,
        "density": {
            "x": density.x.tolist(),
            "y": density.y.tolist(),
            "width": density.width,
        },
        "products": used + trace_probes,
        "images": objective.samples,
        "weights": objective.dimension,
        "normalisation": found.normalisation,
        "loss": objective.loss(),
    }
    write_atomically(path, json.dumps(result) + "\n")
    return result


def last_weights(run_folder: Path) -> Path:
    """Give the checkpoint with a run's last weights."""
    read_run(run_folder)
    path = Checkpoints(run_folder / "checkpoints").last
    if not path.is_file():
        raise LabError(f"{run_folder} has no checkpoint yet")
    return path


def fingerprint(run_folder: Path) -> str:
    """Give the SHA-256 of a run's last checkpoint."""
    return hashlib.sha256(last_weights(run_folder).read_bytes()).hexdigest()


def kept(path: Path, settings: dict[str, Any], checkpoint: str) -> dict[str, Any] | None:
    """Read a measurement, if it was made with these settings from this checkpoint."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(found, dict) or found.get("settings") != settings:
        return None
    return found if found.get("checkpoint") == checkpoint else None


def _batches(
    data: ImageData, size: int, here: World, *, channels_last: bool
) -> list[tuple[Tensor, Tensor]]:
    split = data.train
    if size < len(split):
        generator = torch.Generator().manual_seed(SUBSET_SEED)
        split = _take(split, torch.randperm(len(split), generator=generator)[:size].sort().values)
    stream = Batches(
        split,
        data,
        batch_size=BATCH,
        train=False,
        device=here.device,
        channels_last=channels_last,
    )
    return [(batch.images, batch.labels) for batch in stream.epoch(0)]


def _take(split: Split, chosen: Tensor) -> Split:
    images = split.images
    if isinstance(images, Tensor):
        images = images[chosen]
    else:
        images = copy.copy(images)  # encoded: only what is chosen will be decoded
        images._positions = images._positions[chosen]
    return Split(
        images=images, labels=split.labels[chosen], clean_labels=split.clean_labels[chosen]
    )
