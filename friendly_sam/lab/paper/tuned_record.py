"""The record of an experiment that tunes every method alike: all that its tables are made of.

`fsam reproduce` writes it as `<experiment>.json`; the report and the page "Which one should I use?"
read it, so that every number of theirs can be computed again from a small file.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from friendly_sam.lab.config.methods import METHODS
from friendly_sam.lab.config.resolve import passes, resolve
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.paper.results import Results, Scores
from friendly_sam.lab.paper.tuning import SEARCH_SEEDS, Contender, validation

EDGE = 0.1
"""Share of a range, by ratios, that counts as its edge."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One choice of settings, and how it did on the validation images."""

    settings: dict[str, float]
    validation: float | None
    """Mean over the seeds of the search; `None`: a run failed."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A contender, what was chosen for it, and how that did on fresh seeds."""

    name: str
    method: str
    """The label of its method."""
    passes: float
    """Passes over the training images, times SGD's."""
    cost: float | None
    """Processor time of training, times SGD's in the same measurement."""
    chosen: Trial
    edge: list[str]
    """Settings whose choice lies at the edge of its range."""
    trials: list[Trial]
    last: Scores
    """Test accuracy at the last epoch, by seed."""
    preferred: Scores
    """Test accuracy at the epoch that the validation images prefer, by seed."""


@dataclass(frozen=True, kw_only=True)
class TunedRecord:
    """All contenders of an experiment on one task; the first is the base optimizer."""

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


def situation(run: RunConfig) -> str:
    """Return which of a user's situations a run stands for."""
    if run.data.label_noise:
        return "wrong labels"
    return "fine-tuning" if run.model.weights else "training from scratch"


def tuned_record(found: Results, searched: Results, command: str) -> TunedRecord:
    """Make the record of the reported runs and of those of the search."""
    assert found.experiment.tuning is not None
    contenders = {c.name: c for c in found.experiment.tuning.contenders(found.scale)}
    base = next(iter(contenders.values())).run
    seconds = found.step_costs
    entries = []
    for cell in found.cells:
        run = resolve(cell.cell.runs[0])
        longer = run.epochs / base.epochs
        name, values = cell.cell.method, _settings(run)
        known = name in seconds and found.methods()[0] in seconds
        trials = [
            Trial(
                settings=_settings(trial.cell.runs[0]),
                validation=round(validation(trial), 3) if trial.complete else None,
            )
            for trial in searched.cells
            if trial.cell.method == name
        ]
        entries.append(
            Entry(
                name=name,
                method="SGD" if run.method.name == "base" else METHODS[run.method.name].label,
                passes=_passes(run, base),
                cost=round(longer * seconds[name] / seconds[found.methods()[0]], 3)
                if known
                else None,
                chosen=next(trial for trial in trials if trial.settings == values),
                edge=_at_edge(contenders[name], values),
                trials=trials,
                last=_rounded(cell.scores()),
                preferred=_rounded(cell.scores("preferred_accuracy")),
            )
        )
    return TunedRecord(
        experiment=found.experiment.name,
        scale=found.scale,
        task=found.panels()[0] if found.cells else "",
        situation=situation(base),
        command=command,
        search_seeds=list(SEARCH_SEEDS),
        entries=entries,
        waiting={
            name: _passes(resolve(contender.run), base)
            for name, contender in contenders.items()
            if name not in found.methods()
        },
    )


def _passes(run: RunConfig, base: RunConfig) -> float:
    """Return the passes of a whole run, times those of the base optimizer."""
    return round(passes(run) * run.epochs / base.epochs, 4)


def _settings(run: RunConfig) -> dict[str, float]:
    found = {"lr": run.base.lr, "weight_decay": run.base.weight_decay}
    return found if run.method.rho is None else found | {"rho": run.method.rho}


def _rounded(scores: Scores) -> Scores:
    return {seed: round(score, 4) for seed, score in scores.items()}


def _at_edge(contender: Contender, settings: dict[str, float]) -> list[str]:
    edges = []
    for name, (low, high) in contender.ranges().items():
        reach = (high / low) ** EDGE
        if not low * reach <= settings[name] <= high / reach:
            edges.append(name)
    return edges


def as_json(record: TunedRecord) -> str:
    """Return a record as JSON."""
    return json.dumps(dataclasses.asdict(record), indent=1) + "\n"


def read_record(path: Path) -> TunedRecord:
    """Read a record."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        entries = [_entry(entry) for entry in values.pop("entries")]
        return TunedRecord(**values, entries=entries)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise LabError(f"{path} is damaged; run the experiment's command again") from error


def _entry(values: dict[str, Any]) -> Entry:
    values["chosen"] = Trial(**values["chosen"])
    values["trials"] = [Trial(**trial) for trial in values["trials"]]
    for name in ("last", "preferred"):
        values[name] = {int(seed): float(score) for seed, score in values[name].items()}
    return Entry(**values)
