"""The record of a task whose contenders are tuned alike: all that its tables are made of.

`fsam reproduce` writes those of an experiment as `<experiment>.json`; the report and the page
"Which one should I use?" read them, so that every number of theirs can be computed again.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from friendly_sam.lab.config.resolve import label, passes, resolve
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.config.settings import Setting
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.paper import tuning
from friendly_sam.lab.paper.results import Measured, Results, Scores
from friendly_sam.lab.paper.step_cost import step_cost_key
from friendly_sam.lab.paper.tuning import Contender, Task, validation
from friendly_sam.lab.reading import read_json
from friendly_sam.lab.search.space import Settings, around, at_edge
from friendly_sam.lab.search.study import importance


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One choice of settings, and how it did on the validation images."""

    settings: dict[str, Setting]
    validation: float | None
    """Mean over the seeds of the search; `None`: a run failed."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A contender, what was chosen for it, and how that did on fresh seeds."""

    name: str
    method: str
    """The label of its method."""
    passes: float
    """Passes over the training images, times the base optimizer's."""
    cost: float | None
    """Processor time of training, times the base optimizer's in the same measurement."""
    chosen: Trial
    edge: list[str]
    """Settings whose choice lies at the edge of all that was searched."""
    trials: list[Trial]
    """Those over the whole space, then those around the best of them."""
    wide: int = 6
    """How many trials there are over the whole space."""
    importance: dict[str, float] = field(default_factory=dict)
    """Share of each setting in how the trials differ (fANOVA)."""
    space: dict[str, str] = field(default_factory=dict)
    """What the first trials were spread over."""
    last: Scores
    """Test accuracy at the last epoch, by seed."""
    preferred: Scores
    """Test accuracy at the epoch that the validation images prefer, by seed."""
    missing: int = 0
    """Seeds whose run failed or is not finished."""


@dataclass(frozen=True, kw_only=True)
class TunedRecord:
    """All contenders on one task; the first is the base optimizer."""

    experiment: str
    scale: str
    task: str
    situation: str
    """`training from scratch`, `fine-tuning` or `wrong labels`."""
    command: str
    search_seeds: list[int]
    entries: list[Entry]
    waiting: dict[str, float] = field(default_factory=dict)
    """Contenders that are not tuned yet, with their passes."""
    commits: list[str] = field(default_factory=list)
    """The source that made the reported runs."""


def situation(run: RunConfig) -> str:
    """Return which of a user's situations a run stands for."""
    if run.data.label_noise:
        return "wrong labels"
    pretrained = run.model.weights or run.model.trained_blocks is not None
    return "fine-tuning" if pretrained else "training from scratch"


def tuned_records(found: Results, searched: Results, command: str) -> list[TunedRecord]:
    """Make the records of the reported runs and of those of the search, one per task."""
    assert found.experiment.tuning is not None
    tasks = found.experiment.tuning.tasks(found.scale)
    return [_record(task, found, searched, command) for task in tasks]


def _record(task: Task, found: Results, searched: Results, command: str) -> TunedRecord:
    base = resolve(task.contenders[0].run)
    cells = {
        c.cell.method: c for c in found.cells if (c.cell.panel, c.cell.x) == (task.panel, task.x)
    }
    if not (first := cells.get(task.contenders[0].name)) or not first.runs:
        cells = {}  # without the base optimizer there is nothing to compare with
    entries = []
    for contender in task.contenders:
        cell = cells.get(contender.name)
        if cell is not None and cell.runs:
            trials = [
                trial
                for trial in searched.cells
                if (trial.cell.panel, trial.cell.method) == (task.title, contender.name)
            ]
            cost = found.step_costs.get(step_cost_key(contender.run, contender.name))
            entries.append(_entry(contender, cell, trials, base, cost))
    done = {entry.name for entry in entries}
    return TunedRecord(
        experiment=found.experiment.name,
        scale=found.scale,
        task=task.title,
        situation=situation(base),
        command=command,
        search_seeds=list(task.search_seeds),
        entries=entries,
        waiting={
            c.name: _passes(resolve(c.run), base) for c in task.contenders if c.name not in done
        },
        commits=commits(cells.values()),
    )


def commits(cells: Iterable[Measured]) -> list[str]:
    """List the commits that made the runs of cells."""
    starts = [
        run.environment.get("starts", [{}])[-1] for cell in cells for run in cell.runs.values()
    ]
    return sorted({str(start["commit"]) for start in starts if start.get("commit")})


def _entry(
    contender: Contender,
    cell: Measured,
    trials: Sequence[Measured],
    base: RunConfig,
    cost: float | None,
) -> Entry:
    run = resolve(cell.cell.runs[0])
    tried = [_trial(contender, trial) for trial in trials]
    values = contender.settings(run)
    wide = [trial for trial in tried[: tuning.TRIALS.wide] if trial.validation is not None]
    near = around(contender.space, max(wide, key=_score).settings) if wide else contender.space
    return Entry(
        name=contender.name,
        method=label(run),
        passes=_passes(run, base),
        cost=None if cost is None else round(cost * run.epochs / base.epochs, 3),
        chosen=next(trial for trial in tried if trial.settings == values),
        edge=at_edge(contender.space, near, values),
        trials=tried,
        wide=tuning.TRIALS.wide,
        importance=importance(
            contender.space, [(t.settings, t.validation) for t in tried if t.validation is not None]
        ),
        space={name: str(found) for name, found in contender.space.items()},
        last=_rounded(cell.scores()),
        preferred=_rounded(cell.scores("preferred_accuracy")),
        missing=len(cell.cell.runs) - len(cell.runs),
    )


def _score(trial: Trial) -> float:
    return -1.0 if trial.validation is None else trial.validation


def _trial(contender: Contender, trial: Measured) -> Trial:
    settings: Settings = contender.settings(trial.cell.runs[0])
    score = round(validation(trial), 3) if trial.complete else None
    return Trial(settings=settings, validation=score)


def _passes(run: RunConfig, base: RunConfig) -> float:
    """Return the passes of a whole run, times those of the base optimizer."""
    return round(passes(run) * run.epochs / base.epochs, 4)


def _rounded(scores: Scores) -> Scores:
    return {seed: round(score, 4) for seed, score in scores.items()}


def as_json(records: Sequence[TunedRecord]) -> str:
    """Return the records of an experiment as JSON."""
    return json.dumps([dataclasses.asdict(record) for record in records], indent=1) + "\n"


def read_records(path: Path) -> list[TunedRecord]:
    """Read the records of an experiment."""
    try:
        found = read_json(path)
        return [
            TunedRecord(**{**values, "entries": [_read(entry) for entry in values["entries"]]})
            for values in found
        ]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise LabError(f"{path} is damaged; run the experiment's command again") from error


def _read(values: dict[str, Any]) -> Entry:
    values["chosen"] = Trial(**values["chosen"])
    values["trials"] = [Trial(**trial) for trial in values["trials"]]
    for name in ("last", "preferred"):
        values[name] = {int(seed): float(score) for seed, score in values[name].items()}
    return Entry(**values)
