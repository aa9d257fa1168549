"""The Hessian spectrum of a recorded run: measured once, kept beside its records."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from friendly_sam.lab.records.measured_once import measured_once
from friendly_sam.lab.sharpness.kept import SPECTRUM
from friendly_sam.lab.sharpness.subject import fingerprint, subject
from friendly_sam.sharpness import hessian_trace, spectral_density, top_eigenpairs
from friendly_sam.sharpness.lanczos import Progress
from friendly_sam.sharpness.modes import Mode

MAX_PRODUCTS = 400
"""Hessian products that the eigenpairs may cost."""
FORMAT = 1
"""Raised when the measurement changes, so that an older file is not taken for a newer one."""


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
        with `x` and `y`, the loss and that of the best constant guess, and how all were measured.
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
    key = {"settings": settings, "checkpoint": fingerprint(run_folder)}
    return measured_once(
        run_folder / "sharpness.json",
        key,
        lambda: _measure(run_folder, settings, progress),
        SPECTRUM,
    )


def _measure(
    run_folder: Path, settings: dict[str, Any], progress: Progress | None
) -> dict[str, Any]:
    top, probes, steps = settings["top"], settings["probes"], settings["steps"]
    trace_probes = settings["trace_probes"]
    examined = subject(run_folder, data_size=settings["data_size"], mode=settings["mode"])
    objective = examined.objective
    count = min(max(top, 5), objective.dimension)
    found = top_eigenpairs(
        objective,
        count,
        tolerance=settings["tolerance"],
        max_products=MAX_PRODUCTS,
        progress=progress,
    )
    used, rest = found.products, probes * steps + trace_probes

    def after(done: int, _: int) -> None:
        if progress is not None:
            progress(used + done, found.products + rest)

    density = spectral_density(objective, steps=steps, probes=probes, points=512, progress=after)
    used += density.products
    trace = hessian_trace(objective, probes=trace_probes, known=found, progress=after)
    return {
        "eigenvalues": found.values[:top].tolist(),
        "lambda1": found.sharpness,
        "ratio": found.ratio,
        "converged": found.converged,
        "residuals": found.residuals[:top].tolist(),
        "trace": trace.value,
        "trace_standard_error": trace.standard_error,
        "density": {"x": density.x.tolist(), "y": density.y.tolist(), "width": density.width},
        "products": used + trace_probes,
        "images": objective.samples,
        "weights": objective.dimension,
        "normalisation": found.normalisation,
        "loss": objective.loss(),
        "constant_loss": _entropy([labels for _, labels in examined.batches]),
    }


def _entropy(labels: Sequence[Tensor]) -> float:
    """Return the loss of the best guess that does not look at the image."""
    shares = torch.bincount(torch.cat(list(labels)).cpu()).double() / sum(map(len, labels))
    return float(torch.special.entr(shares).sum())
