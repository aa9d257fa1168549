"""The paper, row by row: one small function per table and figure gives its runs at a scale."""

from __future__ import annotations

from friendly_sam.lab.errors import LabError, did_you_mean
from friendly_sam.lab.experiments.experiment import SCALES, Cell, Experiment, Scale
from friendly_sam.lab.experiments.investigation import figure2a, figure2b, figure2c, figure_a1
from friendly_sam.lab.experiments.studies import (
    ascent_fraction,
    cheaper,
    figure3,
    figure4,
    figure_a2,
    figure_a3,
)
from friendly_sam.lab.experiments.tables import decay, table1, table2, table3, table4, table6
from friendly_sam.lab.experiments.theory import theory
from friendly_sam.lab.experiments.transfer import table5

__all__ = ["EXPERIMENTS", "SCALES", "Cell", "Experiment", "Scale", "experiment"]

EXPERIMENTS: dict[str, Experiment] = {
    row.name: row
    for row in (
        table1, table2, table3, table4, table5, table6, decay,
        figure2a, figure2b, figure2c, figure_a1, figure3, figure4, figure_a2, figure_a3,
        theory, ascent_fraction, cheaper,
    )
}  # fmt: skip
"""Every row, in the order of the page."""


def experiment(name: str) -> Experiment:
    """Give a row by name."""
    if name not in EXPERIMENTS:
        hint = did_you_mean(name, EXPERIMENTS)
        raise LabError(f"unknown row {name!r}{hint}: `fsam reproduce --list` shows them all")
    return EXPERIMENTS[name]
