"""The results of an experiment: the scores of each cell by seed, from the run folders."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from friendly_sam.lab.config.identity import identity
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.paper.experiment import Cell, Experiment, Scale
from friendly_sam.lab.paper.run_folders import place
from friendly_sam.lab.paper.step_cost import read_step_costs
from friendly_sam.lab.records.run import Run, is_run, read_run
from friendly_sam.lab.sharpness.kept import read_spectrum

Scores = dict[int, float]
"""A number by seed."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A cell with the finished runs of it."""

    cell: Cell
    runs: dict[int, Run]
    """By seed; fewer than the cell asks for where some are missing."""
    preferring: bool = False
    """Take the test accuracy at the epoch that validation prefers, not at the last."""

    @property
    def complete(self) -> bool:
        """Whether every run of the cell is there."""
        return len(self.runs) == len(self.cell.runs)

    def scores(self, metric: str = "test_accuracy") -> Scores:
        """Return a metric by seed.

        Besides the metrics of the last epoch there are `early_train_loss` (mean over the
        first half of training), `preferred_accuracy` (test accuracy at the first epoch that is
        best on the validation images) and those of the spectrum, `lambda1` and `ratio`.
        """
        if self.preferring and metric == "test_accuracy":
            metric = "preferred_accuracy"
        scores = {seed: _score(run, metric) for seed, run in self.runs.items()}
        return {seed: score for seed, score in scores.items() if not math.isnan(score)}


def _score(run: Run, metric: str) -> float:
    if metric == "early_train_loss":
        losses = run.series("train_loss")
        return statistics.fmean(losses[: max(1, len(losses) // 2)])
    if metric == "preferred_accuracy":
        held_out = run.series("validation_accuracy")
        if not held_out:
            return run.final("test_accuracy")
        return run.series("test_accuracy")[held_out.index(max(held_out))]
    if metric in ("lambda1", "ratio"):
        return _spectrum(run.folder).get(metric, math.nan)
    return run.final(metric)


def _spectrum(folder: Path) -> dict[str, float]:
    path = folder / "sharpness.json"
    if not path.is_file():
        return {}
    values = read_spectrum(path)
    return {name: float(values[name]) for name in ("lambda1", "ratio") if name in values}


@dataclass(frozen=True, kw_only=True)
class Results:
    """The cells of an experiment with what was measured."""

    experiment: Experiment
    scale: Scale
    cells: tuple[Measured, ...]
    missing: tuple[str, ...] = field(default_factory=tuple)
    """Runs that are not finished."""
    step_costs: dict[str, float] = field(default_factory=dict)
    """Time of a step of each method, times the base optimizer's, where it was measured."""

    def preferring(self) -> Results:
        """Return the same with the test accuracy at the epoch that validation prefers."""
        return replace(self, cells=tuple(replace(cell, preferring=True) for cell in self.cells))

    @property
    def runs(self) -> list[Run]:
        """List every finished run, once."""
        found = {run.folder: run for cell in self.cells for run in cell.runs.values()}
        return list(found.values())

    def panels(self) -> list[str]:
        """List the panels in order."""
        return _unique(cell.cell.panel for cell in self.cells)

    def methods(self) -> list[str]:
        """List the methods in order."""
        return _unique(cell.cell.method for cell in self.cells)

    def sweep(self, panel: str, method: str) -> list[Measured]:
        """List the cells of one curve, in order of x; those with no run yet are left out."""
        found = [
            c for c in self.cells if c.cell.panel == panel and c.cell.method == method and c.runs
        ]
        return sorted(found, key=lambda cell: cell.cell.x or 0.0)

    def chosen(self, panel: str, method: str) -> Measured | None:
        """Return the cell that is best on the validation images; the only one where there is one.

        A sweep of which a cell is incomplete decides nothing: the missing runs could be
        the best ones.
        """
        wanted = [c for c in self.cells if c.cell.panel == panel and c.cell.method == method]
        if len(wanted) == 1:
            return wanted[0] if wanted[0].runs else None
        if not wanted or not all(cell.complete for cell in wanted):
            return None
        scored = [(statistics.fmean(c.scores("validation_accuracy").values()), c) for c in wanted]
        best = max(score for score, _ in scored)
        return next(cell for score, cell in scored if score == best)

    def at(self, panel: str, method: str, x: float | None) -> Measured | None:
        """Return the cell at one x."""
        found = [cell for cell in self.sweep(panel, method) if cell.cell.x == x]
        return found[0] if found else None


def collect(
    experiment: Experiment, scale: Scale, folder: Path, seeds: int | None = None
) -> Results:
    """Read the finished runs of an experiment; a damaged one counts as missing."""
    known: dict[str, Run | None] = {}
    cells, missing = [], []
    for cell in experiment.seeded(scale, seeds):
        runs: dict[int, Run] = {}
        for config in cell.runs:
            name = identity(config)
            if name not in known:
                known[name] = _finished(place(config, folder))
            run = known[name]
            if run is None:
                missing.append(name)
            else:
                runs[config.seed] = run
        cells.append(Measured(cell=cell, runs=runs))
    return Results(
        experiment=experiment,
        scale=scale,
        cells=tuple(cells),
        missing=tuple(_unique(missing)),
        step_costs=read_step_costs(folder.parent, experiment, scale),
    )


def _finished(config: RunConfig) -> Run | None:
    """Read a run whose folder's name says that it is the one that was asked for."""
    folder = Path(str(config.output))
    if not is_run(folder):
        return None
    try:
        run = read_run(folder, config)
    except LabError:
        return None  # `plan` says so
    return run if run.finished and run.metrics else None


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
