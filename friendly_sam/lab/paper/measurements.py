"""What is measured beside training: Hessian spectra of finished runs, and the theorems."""

from __future__ import annotations

from pathlib import Path

from friendly_sam.lab.errors import LabError
from friendly_sam.lab.paper.experiment import Experiment, Scale
from friendly_sam.lab.paper.results import collect

DATA_SIZE: dict[Scale, int] = {"paper": 10_000, "small": 500, "mini": 800}
"""Training images that the Hessian is computed on."""


def measure_spectra(
    experiment: Experiment, scale: Scale, runs: Path, seeds: int | None = None
) -> list[str]:
    """Measure the spectrum of each finished run, once; return the failures."""
    from friendly_sam.lab.sharpness.spectrum import measure

    failed = []
    for found in collect(experiment, scale, runs, seeds).runs:
        if not (found.folder / "sharpness.json").is_file():
            print(f"{experiment.name}: spectrum of {found.folder.name}", flush=True)
        size = min(DATA_SIZE[scale], found.config.data.train_size or DATA_SIZE[scale])
        try:
            measure(found.folder, top=5, data_size=size)
        except (LabError, RuntimeError, ValueError, ImportError) as error:
            failed.append(f"{found.folder.name}, spectrum: {' '.join(str(error).split())}")
    return failed


def measure_theory(folder: Path, scale: Scale) -> list[str]:
    """Measure the theorems; return the failures."""
    from friendly_sam.lab.paper.theory import run

    try:
        run(folder, scale=scale, progress=lambda line: print(f"theory: {line}", flush=True))
    except (LabError, RuntimeError, ValueError) as error:
        return [f"theory: {' '.join(str(error).split())}"]
    return []
