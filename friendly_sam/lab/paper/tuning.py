"""Every method tuned alike: the same number of trials each, then seeds that chose nothing.

An experiment with a `Tuning` runs in two stages. The search tries, for every contender, the same
number of settings with two seeds; the one with the best mean validation accuracy is chosen. Only
runs of the chosen settings on fresh seeds are reported. The settings are points of a Halton
sequence in the learning rate, the weight decay and, where there is one, the radius: trial t has the
same learning rate and weight decay for every contender, and more trials keep those before them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.paper.experiment import Cell, Experiment, Scale
from friendly_sam.lab.paper.results import Measured, Results, collect
from friendly_sam.lab.paper.run_folders import place
from friendly_sam.lab.records.run import run_state

TRIALS = 8
SEARCH_SEEDS = (1000, 1001)
FRESH_SEEDS: dict[Scale, int] = {"paper": 3, "small": 5, "mini": 10}

LEARNING_RATES = (0.005, 0.1)
WEIGHT_DECAYS = (3e-4, 3e-2)
RADIUS_FACTORS = (0.25, 4.0)
"""Times the radius in the middle of a contender's range."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A method, or a way to use one, that is tuned and compared."""

    name: str
    run: RunConfig
    """All that is not tuned."""
    radius: float | None = None
    """The middle of the range of its radius; `None`: it has none."""

    def ranges(self) -> dict[str, tuple[float, float]]:
        """Return the range of every setting that is tuned."""
        found = {"lr": LEARNING_RATES, "weight_decay": WEIGHT_DECAYS}
        if self.radius is not None:
            low, high = RADIUS_FACTORS
            found["rho"] = (low * self.radius, high * self.radius)
        return found

    def trials(self, count: int) -> list[RunConfig]:
        """Return the runs of the search, one per trial."""
        return [self._trial(number) for number in range(1, count + 1)]

    def _trial(self, number: int) -> RunConfig:
        bases = {"lr": 2, "weight_decay": 5, "rho": 3}
        values = {
            name: float(f"{low * (high / low) ** halton(number, bases[name]):.2g}")
            for name, (low, high) in self.ranges().items()
        }
        base = replace(self.run.base, lr=values["lr"], weight_decay=values["weight_decay"])
        method = replace(self.run.method, rho=values.get("rho"))
        return replace(self.run, base=base, method=method)


def halton(number: int, base: int) -> float:
    """Return a point of the van der Corput sequence, between 0 and 1."""
    value, share = 0.0, 1.0
    while number:
        share /= base
        number, digit = divmod(number, base)
        value += share * digit
    return value


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Who is tuned, and how."""

    panel: Callable[[Scale], str]
    """The task."""
    contenders: Callable[[Scale], list[Contender]]
    """Everybody; the first is the base optimizer, which the others are compared with."""
    timed: Callable[[Scale, RunConfig], RunConfig] = lambda scale, run: run
    """What the cost of a step is measured on, where the run itself is too small for that."""
    trials: int = TRIALS

    def search_cells(self, scale: Scale) -> list[Cell]:
        """Return a cell per contender and trial."""
        return [
            Cell(
                panel=self.panel(scale),
                method=contender.name,
                x=float(number),
                runs=tuple(replace(run, seed=seed) for seed in SEARCH_SEEDS),
            )
            for contender in self.contenders(scale)
            for number, run in enumerate(contender.trials(self.trials), start=1)
        ]

    def fresh_cell(self, scale: Scale, name: str, run: RunConfig) -> Cell:
        """Return the cell that is reported, with the settings of a run."""
        runs = tuple(replace(run, seed=seed) for seed in range(FRESH_SEEDS[scale]))
        return Cell(panel=self.panel(scale), method=name, runs=runs)

    def untuned_cells(self, scale: Scale) -> list[Cell]:
        """Return what is to be reported before anything is chosen: the first trial of each."""
        return [
            self.fresh_cell(scale, contender.name, contender.trials(1)[0])
            for contender in self.contenders(scale)
        ]


def search(experiment: Experiment) -> Experiment:
    """Return the experiment whose cells are the trials."""
    assert experiment.tuning is not None
    return replace(experiment, cells=experiment.tuning.search_cells)


def settled(experiment: Experiment, scale: Scale, folder: Path) -> Experiment:
    """Return the experiment with the settings that validation chose.

    A contender of which a trial is not done yet is left out.
    """
    tuning = experiment.tuning
    if tuning is None:
        return experiment
    found = collect(search(experiment), scale, folder)
    cells = []
    for name in found.methods():
        chosen = choice(found, name, folder)
        if chosen is not None:
            cells.append(tuning.fresh_cell(scale, name, chosen.cell.runs[0]))
    return replace(experiment, cells=lambda scale: cells)


def choice(found: Results, name: str, folder: Path) -> Measured | None:
    """Return the trial with the best mean validation accuracy; a failed run loses its trial."""
    trials = [cell for cell in found.cells if cell.cell.method == name]
    complete = [trial for trial in trials if trial.complete]
    if not complete or not all(trial.complete or _failed(trial, folder) for trial in trials):
        return None
    return max(complete, key=validation)


def validation(trial: Measured) -> float:
    """Return the mean validation accuracy at the last epoch."""
    return statistics.fmean(trial.scores("validation_accuracy").values())


def _failed(trial: Measured, folder: Path) -> bool:
    """Whether every run of a trial ended, some of them in an error."""
    states = [run_state(Path(str(place(run, folder).output))) for run in trial.cell.runs]
    return all(state in ("finished", "failed") for state in states)
