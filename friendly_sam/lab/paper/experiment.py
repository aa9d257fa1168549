"""What an experiment is: cells of runs, the claims made of them, and how it is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from friendly_sam.lab.config.schema import RunConfig

if TYPE_CHECKING:
    from friendly_sam.lab.paper.claims import Claim
    from friendly_sam.lab.paper.tuning import Tuning

Scale = Literal["paper", "real", "medium", "small", "mini"]
SCALES: tuple[Scale, ...] = ("paper", "real", "medium", "small", "mini")
RANDOM_LABELS = " % random labels"
IMAGES_A_BATCH = " images a batch"
"""Units of x."""
SEEDS: dict[Scale, int] = {"paper": 3, "real": 10, "medium": 7, "small": 7, "mini": 10}
"""Fresh runs of a cell. The paper repeats everything 3 times (section 6.1)."""

Drawing = Literal["bars", "lines", "training", "spectrum", "cost", "theory"]
"""Bars of the cells' accuracy, lines over x, curves over epochs, eigenvalues; accuracy against the
measured cost of training."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Runs that differ in nothing but the seed: one number of a table, one point of a curve."""

    panel: str
    """The line of the table, or the axes of the figure: data set and network."""
    method: str
    """The column of the table, or the curve."""
    x: float | None = None
    """What is swept: radius, noise, batch size; `None` where nothing is."""
    runs: tuple[RunConfig, ...]
    """One run per seed, with no output folder: the planner gives it one."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A table or figure of the paper, as one function from a scale to cells."""

    name: str
    """What it is called on the command line."""
    title: str
    """What it shows."""
    claim: str
    """What the paper says of it."""
    cells: Callable[[Scale], list[Cell]]
    """Its cells at a scale."""
    mapping: dict[Scale, str]
    """How the paper's setting is mapped to each scale that it has: what was changed, and why."""
    claims: Sequence[Claim] = field(default_factory=tuple)
    """The comparisons that decide what the paper says."""
    drawing: Drawing = "bars"
    """How it is drawn."""
    x_label: str = ""
    """What x is."""
    x_unit: str = ""
    """What follows a value of x where a point is named."""
    log_x: bool = False
    """Draw x by ratios."""
    metric: str = "test_accuracy"
    """What is tabled."""

    tuning: Tuning | None = None
    """How its settings are searched for; its cells are then those of the settings chosen."""
    unsettled: bool = False
    """Settings of some contender are not chosen yet, so that its cells are not known."""
    one_setting: bool = False
    """It is about what happens at one setting of everything else, not about the best of each."""

    first: Callable[[Scale], list[RunConfig]] = lambda scale: []
    """Runs that others start from; they are in no cell."""

    def seeded(self, scale: Scale, seeds: int | None = None) -> list[Cell]:
        """Return its cells, with another number of seeds where that is asked for."""
        cells = self.cells(scale)
        if seeds is None:
            return cells
        return [
            replace(cell, runs=tuple(replace(cell.runs[0], seed=seed) for seed in range(seeds)))
            for cell in cells
        ]

    def runs(self, scale: Scale, seeds: int | None = None) -> list[RunConfig]:
        """List its runs, without repeats, in the order in which they can be done."""
        own = [run for cell in self.seeded(scale, seeds) for run in cell.runs]
        return list(dict.fromkeys(self.first(scale) + own))
