"""`fsam report`: curves and a table of any runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from friendly_sam.lab.config.identity import FREE
from friendly_sam.lab.config.resolve import label
from friendly_sam.lab.config.yaml import flatten
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.plotting.panels import Panel, Series
from friendly_sam.lab.records.run import Run, is_run, read_run
from friendly_sam.lab.report.page import Page, Section
from friendly_sam.lab.report.tables import Table
from friendly_sam.lab.statistics import paired_difference, summarize

_SHORT = {"data.name": "", "model.name": "", "data.label_noise": "noise", "base.name": ""}
"""How settings are called in a group's name; empty: the value says it all."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs that differ in nothing but the seed, one per seed, all finished or all as far."""

    name: str
    family: str
    runs: tuple[Run, ...]
    again: tuple[Run, ...] = ()
    """Further runs of a seed that is there already, left out."""

    def by_seed(self, metric: str) -> dict[int, float]:
        """Return the last value of a metric for each seed."""
        return {run.config.seed: run.final(metric) for run in self.runs if run.series(metric)}


def find_runs(folders: Iterable[Path]) -> list[Run]:
    """Read runs; a folder of runs stands for all of them, in order of their names."""
    found: dict[Path, Path] = {}
    for folder in folders:
        inner = sorted(p.parent for p in folder.rglob("status.json")) if folder.is_dir() else []
        inside = [folder] if is_run(folder) else [path for path in inner if is_run(path)]
        for path in inside or [folder]:  # reading what is no run gives the error to show
            found.setdefault(path.resolve(), path)
    return [read_run(path) for path in found.values()]


Settings = tuple[tuple[str, str], ...]


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
    return [
        Group(
            name=_name(first, _telling(first, firsts)) + _progress(first),
            family=label(first.config),
            runs=tuple(same[0] for same in by_seed.values()),
            again=tuple(run for same in by_seed.values() for run in same[1:]),
        )
        for first, by_seed in zip(firsts, keyed.values(), strict=True)
    ]


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
    return f" ({run.state}, {len(run.metrics)} of {run.config.epochs} epochs)"


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


def runs_page(runs: Sequence[Run]) -> tuple[Page, Table]:
    """Make the page, and the table to print."""
    groups = group_runs(runs)
    measured = [group for group in groups if group.by_seed("test_accuracy")]
    if not measured:
        raise LabError("none of these runs has finished an epoch yet")
    table = _table(measured)
    text = f"{len(runs)} runs in {len(groups)} groups."
    unfinished = [f"{run.folder.name} ({run.state})" for run in runs if not run.finished]
    if unfinished:
        text += f" Not finished, and counted apart: {', '.join(unfinished)}."
    again = [run.folder.name for group in groups for run in group.again]
    if again:
        text += f" Left out, because their settings and seed are there already: {', '.join(again)}."
    sections = [
        Section(title="At the end of training", text=text, table=table),
        *[
            Section(title=title, chart=_curves(measured, metric, title, unit))
            for metric, title, unit in (
                ("test_accuracy", "Test accuracy", "accuracy, %"),
                ("train_loss", "Training loss", "loss"),
            )
        ],
    ]
    return Page(title="Runs", sections=sections, footer=_FOOTER), table


_FOOTER = (
    "Mean ± sample standard deviation over n seeds; bands in the curves likewise. Differences are "
    "paired by seed, with the 95 % t-interval."
)


def _table(groups: Sequence[Group]) -> Table:
    header = ["runs", "n", "test accuracy, %", "best, %", "train loss", "s per epoch"]
    first = next((group for group in groups if group.runs[0].finished), None)
    differences = [
        paired_difference(group.by_seed("test_accuracy"), first.by_seed("test_accuracy"))
        if first is not None and group is not first and group.runs[0].finished
        else None
        for group in groups
    ]
    if first is not None and any(differences):
        header.append(f"against {first.name}")
    rows = []
    for group, difference in zip(groups, differences, strict=True):
        final = group.by_seed("test_accuracy")
        measured = [run for run in group.runs if run.metrics]
        best = summarize([max(run.series("test_accuracy")) for run in measured])
        seconds = [second for run in measured for second in run.series("seconds")]
        accuracy = str(summarize(list(final.values()))).rpartition(" (")[0]
        row = [
            group.name,
            str(len(final)),
            accuracy,
            str(best).rpartition(" (")[0],
            f"{summarize(list(group.by_seed('train_loss').values())).mean:.4f}",
            f"{summarize(seconds).mean:.2f}",
        ]
        rows.append([*row, *([str(difference or "")] if any(differences) else [])])
    return Table(header=header, rows=rows)


def _curves(groups: Sequence[Group], metric: str, title: str, unit: str) -> Panel:
    series = []
    for group in groups:
        lines = [run.series(metric) for run in group.runs if run.series(metric)]
        shared = min(len(line) for line in lines)
        points = [summarize([line[epoch] for line in lines]) for epoch in range(shared)]
        series.append(
            Series(
                label=group.name,
                x=list(range(1, shared + 1)),
                y=[point.mean for point in points],
                error=[point.std for point in points] if len(lines) > 1 else None,
                points=shared == 1,
                family=group.family,
            )
        )
    return Panel(
        title=title,
        x_label="epoch",
        y_label=unit,
        series=series,
        ceiling=100 if unit.endswith("%") else math.inf,
        description=title,
    )
