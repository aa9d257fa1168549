"""Every experiment: one small function per table and figure returns its runs at a scale."""

from __future__ import annotations

from friendly_sam.lab.errors import LabError, did_you_mean
from friendly_sam.lab.paper.experiment import SCALES, Cell, Experiment, Scale
from friendly_sam.lab.paper.experiments.figure2 import figure2a, figure2b, figure2c, figure_a1
from friendly_sam.lab.paper.experiments.figures import (
    figure3,
    figure4,
    figure_a2,
    figure_a3,
)
from friendly_sam.lab.paper.experiments.own_studies import ascent_fraction, long_training
from friendly_sam.lab.paper.experiments.photographs import transfer_noise
from friendly_sam.lab.paper.experiments.relatives import cheaper, relatives
from friendly_sam.lab.paper.experiments.tables import decay, table1, table2, table3, table4, table6
from friendly_sam.lab.paper.experiments.theorems import theory
from friendly_sam.lab.paper.experiments.transfer import table5

__all__ = ["EXPERIMENTS", "SCALES", "Cell", "Experiment", "Scale", "experiment"]

EXPERIMENTS: dict[str, Experiment] = {
    entry.name: entry
    for entry in (
        table1, table2, table3, table4, table5, table6, decay,
        figure2a, figure2b, figure2c, figure_a1, figure3, figure4, figure_a2, figure_a3,
        theory, ascent_fraction, relatives, cheaper, long_training, transfer_noise,
    )
}  # fmt: skip
"""Every experiment, in the order of the page."""


def experiment(name: str) -> Experiment:
    """Return an experiment by name."""
    if name not in EXPERIMENTS:
        hint = did_you_mean(name, EXPERIMENTS)
        raise LabError(f"unknown experiment {name!r}{hint}: `fsam reproduce --list` shows them all")
    return EXPERIMENTS[name]
