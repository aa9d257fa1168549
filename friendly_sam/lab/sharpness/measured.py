"""A run with what was measured of it, and the tables of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from friendly_sam.lab.records.run import Run
from friendly_sam.lab.report.tables import Table

LEARNED = 0.97
"""Share of a constant guess's loss that a network which learned something stays below."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A run with its spectrum and the landscape around it."""

    run: Run
    spectrum: Mapping[str, Any]
    landscape: Mapping[str, Any]
    path: Mapping[str, Any] | None = None
    """The line to this run's weights from those of the first run on the same data."""
    path_from: str | None = None
    """The name of that run."""

    @property
    def learned(self) -> bool:
        """Whether the loss is clearly below that of the best guess that ignores the image."""
        guess = self.spectrum.get("constant_loss")  # older files do not say
        return guess is None or self.spectrum["loss"] < LEARNED * guess


def curvature_table(measured: Sequence[Measured]) -> Table:
    """Return accuracy, loss and spectrum of each run; one that did not learn is marked."""
    header = ["run", "test, %", "loss", "λ1", "λ5", "λ1/λ5", "trace", "note"]
    rows = []
    for one in measured:
        found, accuracy = one.spectrum, one.run.series("test_accuracy")
        notes = [] if one.learned else ["did not learn"]
        notes += [] if found["converged"] else ["not converged"]
        rows.append(
            [
                one.run.folder.name,
                f"{accuracy[-1]:.1f}" if accuracy else "",
                f"{found['loss']:.4f}",
                f"{found['lambda1']:.3g}",
                f"{found['lambda1'] / found['ratio']:.3g}",
                f"{found['ratio']:.3f}",
                f"{found['trace']:.3g} ± {found['trace_standard_error']:.2g}",
                ", ".join(notes),
            ]
        )
    if not any(row[-1] for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    return Table(header=header, rows=rows)


def rises_table(measured: Sequence[Measured]) -> Table:
    """Return how far the loss rises from each run's weights, by direction."""
    names = ("full", "batch", "friendly", "random")
    rows = []
    for one in measured:
        rises = one.landscape["rises"]
        means = [f"{rises[name]['mean']:.3g}" for name in names]
        if one.spectrum["images"] <= one.run.config.data.batch_size:
            means[1:3] = "-", "-"  # one batch holds all images: its gradient is the full one
        rows.append([one.run.folder.name, *means, f"{one.landscape['worst']:.3g}"])
    return Table(header=["run", *names, "worst"], rows=rows)
