"""Runs gathered by settings, and named by what tells them apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from string import ascii_lowercase
from typing import Any

from friendly_sam.lab.config.identity import FREE
from friendly_sam.lab.config.resolve import label
from friendly_sam.lab.config.yaml import flatten
from friendly_sam.lab.counting import counted
from friendly_sam.lab.records.claim import is_being_written
from friendly_sam.lab.records.run import Run

LONGEST = 26
"""Letters of a label; a longer one is cut to the method and a letter, and explained in a key."""
DATA = (
    "name", "train_size", "validation_size", "test_size", "image_size", "classes",
    "label_noise", "noise_from",
)  # fmt: skip
"""What decides which images and labels a run is trained and tested on."""
_SHORT = {
    "data.name": "", "model.name": "", "base.name": "",
    "data.label_noise": "noise", "method.rho": "ρ",
}  # fmt: skip
"""How settings are called in a group's name; empty: the value says it all."""

Settings = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs that differ in nothing but the seed, one per seed, all finished or all as far."""

    name: str
    """The method, and the settings in which it differs from the other groups."""
    family: str
    runs: tuple[Run, ...]
    again: tuple[Run, ...] = ()
    """Further runs of a seed that is there already, left out."""
    label: str = ""
    """The name, or a short one where that is long."""

    @property
    def finished(self) -> bool:
        """Whether its runs came to their end."""
        return self.runs[0].finished

    def by_seed(self, metric: str) -> dict[int, float]:
        """Return the last value of a metric for each seed."""
        return {run.config.seed: run.final(metric) for run in self.runs if run.series(metric)}


@dataclass(frozen=True, kw_only=True)
class Task:
    """The groups of runs on the same data."""

    name: str
    groups: tuple[Group, ...]


def split_by_data(runs: Sequence[Run]) -> list[Task]:
    """Gather runs by the images and labels that they are trained and tested on."""
    by_data: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        by_data.setdefault(tuple(getattr(run.config.data, key) for key in DATA), []).append(run)
    return [
        Task(name=_task_name(data, list(by_data)), groups=tuple(group_runs(found)))
        for data, found in by_data.items()
    ]


def _task_name(data: tuple[Any, ...], others: Sequence[tuple[Any, ...]]) -> str:
    """Name a task by its data set, and by what it does not share with the others of that name."""
    rivals = [other for other in others if other[0] == data[0]]
    words = [str(data[0])]
    for place, key in enumerate(DATA[1:], start=1):
        if len({other[place] for other in rivals}) > 1:
            value = "all" if data[place] is None else _show(data[place])
            words.append(f"{key} {value}")
    return ", ".join(words)


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Gather runs by settings, and name each group by the settings in which they differ.

    Runs that did not finish are never gathered with finished ones. Of several runs of one seed
    the first counts.
    """
    keyed: dict[tuple[Settings, str], dict[int, list[Run]]] = {}
    for run in runs:
        flat = {k: v for k, v in flatten(run.config).items() if k not in FREE and k != "seed"}
        settings = tuple((k, repr(v)) for k, v in flat.items())
        key = settings, _progress(run)
        keyed.setdefault(key, {}).setdefault(run.config.seed, []).append(run)
    firsts = [next(iter(by_seed.values()))[0] for by_seed in keyed.values()]
    groups = [
        Group(
            name=_name(first, _telling(first, firsts)) + _progress(first),
            family=label(first.config),
            runs=tuple(same[0] for same in by_seed.values()),
            again=tuple(run for same in by_seed.values() for run in same[1:]),
        )
        for first, by_seed in zip(firsts, keyed.values(), strict=True)
    ]
    return _labelled(groups)


def _labelled(groups: Sequence[Group]) -> list[Group]:
    """Return the groups, each with a short label of its own."""
    cut = Counter(_short_name(group) for group in groups if len(group.name) > LONGEST)
    seen: Counter[str] = Counter()
    labelled = []
    for group in groups:
        short = group.name
        if len(group.name) > LONGEST:
            short = _short_name(group)
            if cut[short] > 1 or any(other.name == short for other in groups):
                short = _short_name(group, f" {_letters(seen[group.family])}")
                seen[group.family] += 1
        labelled.append(replace(group, label=short))
    return labelled


def _short_name(group: Group, letter: str = "") -> str:
    """Return the method, a letter, and the state of runs that did not finish."""
    state = "" if group.finished else f" ({state_of(group.runs[0])})"
    return f"{group.family}{letter}{state}"


def _letters(number: int) -> str:
    """Return a, b, ... z, aa, ab, ..."""
    head, place = divmod(number, len(ascii_lowercase))
    return (_letters(head - 1) if head else "") + ascii_lowercase[place]


def reference(group: Group, groups: Sequence[Group]) -> Group | None:
    """Return the base optimizer alone on the same data, with the nearest settings; or `None`."""
    bases = [
        other
        for other in groups
        if other.runs[0].config.method.name == "base" and other.finished and other is not group
    ]
    if not group.finished or group.runs[0].config.method.name == "base":
        return None
    return min(bases, key=lambda base: _distance(group, base), default=None)


def _distance(group: Group, base: Group) -> int:
    """Count the settings in which two groups differ, the method's aside."""
    first, second = (flatten(each.runs[0].config) for each in (group, base))
    apart = [key for key in first if key not in FREE and not key.startswith("method.")]
    return sum(first[key] != second[key] for key in apart if key != "seed")


def _telling(run: Run, runs: Sequence[Run]) -> set[str]:
    """Return the settings that runs differ in, but those that the other's method does not have."""
    own, told = flatten(run.config), set()
    for other in runs:
        same_method = label(other.config) == label(run.config)
        for key, value in flatten(other.config).items():
            lacking = key.startswith(("method.", "base.")) and None in (value, own[key])
            if value != own[key] and (same_method or not lacking):
                told.add(key)
    return told


def _progress(run: Run) -> str:
    if run.finished:
        return ""
    return f" ({state_of(run)}, {len(run.metrics)} of {counted(run.config.epochs, 'epoch')})"


def state_of(run: Run) -> str:
    """Return the state of a run; one that says `running` while nobody writes to it has stopped."""
    stopped = run.state == "running" and not is_being_written(run.folder)
    return "stopped" if stopped else run.state


def _name(run: Run, telling: set[str]) -> str:
    words = [label(run.config)]
    for key, value in flatten(run.config).items():
        free = key in FREE or key in ("method.name", "seed")
        free |= key == "base.name" and run.config.method.name == "base"  # the label says it
        if key in telling and not free and value is not None:
            short = _SHORT.get(key, key.split(".")[-1])
            words.append(f"{short}={_show(value)}" if short else _show(value))
    return " ".join(words)


def _show(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
