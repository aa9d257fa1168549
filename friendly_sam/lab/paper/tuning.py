"""Every method tuned alike: the same number of trials each, then seeds that chose nothing.

An experiment with a `Tuning` runs in three stages, for every contender of every task alike. Some
trials are spread over its whole space, with two seeds each or more. Others lie in the half of the
space around the best of them, which reaches past an edge where the best lies near one: so a range
that was too narrow is widened. `TRIALS` says how many, the same for all. The trial with the best
mean validation accuracy is chosen, and only runs of it on fresh seeds are reported.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.config.settings import as_trial, changed, value
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.paper.experiment import SEEDS, Cell, Experiment, Scale
from friendly_sam.lab.paper.results import Measured, Results, collect
from friendly_sam.lab.paper.run_folders import place
from friendly_sam.lab.records.run import run_state
from friendly_sam.lab.search.space import Settings, Space, around, points


@dataclass(frozen=True, kw_only=True)
class Trials:
    """How many trials every contender has."""

    wide: int
    """Over the whole space."""
    near: int
    """Around the best of them."""


TRIALS = Trials(wide=6, near=4)
SEARCH_SEEDS = (1000, 1001)


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A method, or a way to use one, that is tuned and compared."""

    name: str
    run: RunConfig
    """All that is not tuned."""
    space: Space
    """What is tuned, by the dotted name of the setting: ranges and choices."""

    def wide(self) -> list[RunConfig]:
        """Return the trials over the whole space."""
        return [changed(self.run, point) for point in points(self.space, TRIALS.wide)]

    def near(self, best: RunConfig) -> list[RunConfig]:
        """Return the trials around one of them."""
        close = around(self.space, self.settings(best))
        return [changed(self.run, point) for point in points(close, TRIALS.near, seed=1)]

    def settings(self, run: RunConfig) -> Settings:
        """Return what a run has of the tuned settings."""
        return {name: value(run, name) for name in self.space}


@dataclass(frozen=True, kw_only=True)
class Task:
    """Contenders that are compared with each other: a line of a table, a point of a curve."""

    panel: str
    contenders: tuple[Contender, ...]
    """The first is the base optimizer, which the others are compared with."""
    x: float | None = None
    """What distinguishes the tasks of a panel: noise, batch size."""
    unit: str = ""
    """What x is, for the name of the task."""
    search_seeds: tuple[int, ...] = SEARCH_SEEDS
    """With which each trial is run: more of them where runs of one setting differ much."""

    @property
    def title(self) -> str:
        """The task's name."""
        return self.panel if self.x is None else f"{self.panel}, {self.x:g}{self.unit}"

    def wide_cells(self) -> list[Cell]:
        """Return a cell per contender and trial over the whole space."""
        return [cell for c in self.contenders for cell in self.trial_cells(c, c.wide())]

    def trial_cells(
        self, contender: Contender, runs: Sequence[RunConfig], first: int = 1
    ) -> list[Cell]:
        """Return a cell per trial, whose runs never look at the test images."""
        return [
            Cell(
                panel=self.title,
                method=contender.name,
                x=float(number),
                runs=tuple(replace(as_trial(run), seed=seed) for seed in self.search_seeds),
            )
            for number, run in enumerate(runs, start=first)
        ]


Chosen = Mapping[tuple[str, str], RunConfig]
"""A run with the settings that were chosen, by the task's title and the contender's name."""
Report = Callable[[Scale, Chosen], list[Cell]]
"""What is run once the settings are chosen."""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """Who is tuned, and what is run with the settings chosen."""

    tasks: Callable[[Scale], list[Task]]
    """All tasks; none at a scale whose settings are given, as in the published recipes."""
    report: Report | None = None
    """What is tabled (default: every contender on fresh seeds)."""
    timed: Callable[[Scale, RunConfig], RunConfig] = lambda scale, run: run
    """What the cost of a step is measured on, where the run itself is too small for that."""

    def reported(self, scale: Scale, chosen: Chosen) -> list[Cell]:
        """Return the cells that are tabled."""
        if self.report is not None:
            return self.report(scale, chosen)
        return [
            fresh_cell(
                scale, task.panel, contender.name, chosen[task.title, contender.name], task.x
            )
            for task in self.tasks(scale)
            for contender in task.contenders
            if (task.title, contender.name) in chosen
        ]

    def unchosen(self, scale: Scale) -> list[Cell]:
        """Return what would be tabled if the first trial of each were chosen."""
        first = {
            (task.title, contender.name): contender.wide()[0]
            for task in self.tasks(scale)
            for contender in task.contenders
        }
        return self.reported(scale, first)

    def expected_runs(self, scale: Scale) -> list[RunConfig]:
        """Return as many runs of the search as there will be, to count them and their time."""
        cells = [
            cell
            for task in self.tasks(scale)
            for c in task.contenders
            for cell in task.trial_cells(c, [*c.wide(), *c.near(c.wide()[0])])
        ]
        return [run for cell in cells for run in cell.runs]


def fresh_cell(scale: Scale, panel: str, name: str, run: RunConfig, x: float | None = None) -> Cell:
    """Return a cell of seeds that took no part in any choice."""
    runs = tuple(replace(run, seed=seed) for seed in range(SEEDS[scale]))
    return Cell(panel=panel, method=name, x=x, runs=runs)


def search(experiment: Experiment, scale: Scale, folder: Path) -> Experiment:
    """Return the experiment whose cells are the trials known so far.

    Those around the best are known once all others of a contender have ended.
    """
    assert experiment.tuning is not None
    tasks = experiment.tuning.tasks(scale)
    wide = [cell for task in tasks for cell in task.wide_cells()]
    found = collect(replace(experiment, cells=lambda scale: wide), scale, folder)
    cells = list(wide)
    for task in tasks:
        for contender in task.contenders:
            best = choice(found, task.title, contender.name, folder, TRIALS.wide)
            if best is not None:
                near = contender.near(best.cell.runs[0])
                cells += task.trial_cells(contender, near, first=TRIALS.wide + 1)
    return replace(experiment, cells=lambda scale: cells)


def is_tuned(experiment: Experiment, scale: Scale) -> bool:
    """Whether an experiment searches for settings at a scale."""
    return experiment.tuning is not None and bool(experiment.tuning.tasks(scale))


def settled(experiment: Experiment, scale: Scale, folder: Path) -> Experiment:
    """Return the experiment with the settings that validation chose.

    A contender of which a trial is not done yet is left out.
    """
    if experiment.tuning is None or not is_tuned(experiment, scale):
        return experiment
    found = collect(search(experiment, scale, folder), scale, folder)
    chosen, tasks = {}, experiment.tuning.tasks(scale)
    for task in tasks:
        for contender in task.contenders:
            best = choice(found, task.title, contender.name, folder, TRIALS.wide + TRIALS.near)
            if best is not None:
                found_settings = contender.settings(best.cell.runs[0])
                chosen[task.title, contender.name] = changed(contender.run, found_settings)
    cells = experiment.tuning.reported(scale, chosen)
    unsettled = len(chosen) < sum(len(task.contenders) for task in tasks)
    return replace(experiment, cells=lambda scale: cells, unsettled=unsettled)


def choice(found: Results, title: str, name: str, folder: Path, trials: int) -> Measured | None:
    """Return the trial with the best mean validation accuracy, once so many have ended.

    A failed run loses its trial.
    """
    own = [c for c in found.cells if (c.cell.panel, c.cell.method) == (title, name)]
    complete = [trial for trial in own if trial.complete]
    ended = all(trial.complete or _failed(trial, folder) for trial in own)
    if not complete or not ended or len(own) < trials:
        return None
    return max(complete, key=validation)


def validation(trial: Measured) -> float:
    """Return the mean validation accuracy at the last epoch."""
    return statistics.fmean(trial.scores("validation_accuracy").values())


def _failed(trial: Measured, folder: Path) -> bool:
    """Whether every run of a trial ended, some of them in an error; a damaged one may be mended."""
    try:
        states = {run_state(Path(str(place(run, folder).output))) for run in trial.cell.runs}
    except LabError:  # a status that cannot be read
        return False
    return "failed" in states <= {"finished", "failed"}
