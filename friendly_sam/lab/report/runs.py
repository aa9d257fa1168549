"""`fsam report`: curves and a table of any runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from friendly_sam.lab.errors import LabError
from friendly_sam.lab.methods import label
from friendly_sam.lab.parsing import FREE, flatten
from friendly_sam.lab.records import Run, is_run, read_run
from friendly_sam.lab.report.page import Page, Section, Table
from friendly_sam.lab.report.plots import Chart, Series
from friendly_sam.lab.report.statistics import paired_difference, summarize

_SHORT = {"data.name": "", "model.name": "", "data.label_noise": "noise", "base.name": ""}
"""How settings are called in a group's name; empty: the value says it all."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Runs that differ in nothing but the seed."""

    name: str
    family: str
    runs: tuple[Run, ...]

    def by_seed(self, metric: str) -> dict[int, float]:
        """Give the last value of a metric for each seed."""
        return {run.config.seed: run.final(metric) for run in self.runs if run.series(metric)}


def find_runs(folders: Iterable[Path]) -> list[Run]:
    """Read runs; a folder of runs stands for all of them, in order of their names."""
    runs = []
    for folder in folders:
        if is_run(folder):
            runs.append(read_run(folder))
            continue
        inner = sorted(p.parent for p in folder.rglob("status.json")) if folder.is_dir() else []
        found = [read_run(path) for path in inner if is_run(path)]
        runs.extend(found or [read_run(folder)])  # reading it gives the error to show
    return runs


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Gather runs by settings, and name each group by the settings that tell them apart."""
    keyed: dict[tuple[tuple[str, str], ...], list[Run]] = {}
    for run in runs:
        flat = {k: v for k, v in flatten(run.config).items() if k not in FREE and k != "seed"}
        keyed.setdefault(tuple((k, repr(v)) for k, v in flat.items()), []).append(run)
    varying = {
        key
        for key in dict(next(iter(keyed), ()))
        if len({dict(settings)[key] for settings in keyed}) > 1
    }
    return [
        Group(name=_name(group[0], varying), family=label(group[0].config), runs=tuple(group))
        for group in keyed.values()
    ]


def _name(run: Run, varying: set[str]) -> str:
    parts = [label(run.config)]
    for key, value in flatten(run.config).items():
        if key in varying and key not in ("method.name", "base.name") and value is not None:
            short = _SHORT.get(key, key.split(".")[-1])
            parts.append(f"{short}={_show(value)}" if short else _show(value))
    return " ".join(parts)


def _show(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def runs_page(runs: Sequence[Run]) -> tuple[Page, Table]:
    """Make the page, and the table to print."""
    groups = group_runs(runs)
    measured = [group for group in groups if group.by_seed("test_accuracy")]
    if not measured:
        raise LabError("none of these runs has finished an epoch yet")
    table = _table(measured)
    unfinished = [run for run in runs if not run.finished]
    text = f"{len(runs)} runs in {len(groups)} groups."
    if unfinished:
        names = ", ".join(f"{run.folder.name} ({run.state})" for run in unfinished)
        text += f" Not finished: {names}."
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
    first = groups[0]
    header = ["runs", "n", "test accuracy, %", "best, %", "train loss", "s an epoch"]
    compare = len(groups) > 1 and len(first.runs) > 1
    if compare:
        header.append(f"against {first.name}")
    rows = []
    for group in groups:
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
        if compare:
            difference = paired_difference(final, first.by_seed("test_accuracy"))
            row.append("" if group is first or difference is None else str(difference))
        rows.append(row)
    return Table(header=header, rows=rows)


def _curves(groups: Sequence[Group], metric: str, title: str, unit: str) -> Chart:
    families = [group.family for group in groups]
    series = []
    for group in groups:
        lines = [run.series(metric) for run in group.runs if run.series(metric)]
        shared = min(len(line) for line in lines)
        points = [summarize([line[epoch] for line in lines]) for epoch in range(shared)]
        unique = families.count(group.family) == 1
        series.append(
            Series(
                label=group.name,
                x=list(range(1, shared + 1)),
                y=[point.mean for point in points],
                error=[point.std for point in points] if len(lines) > 1 else None,
                points=shared == 1,
                family=group.family if unique else group.name,
            )
        )
    return Chart(title=title, x_label="epoch", y_label=unit, series=series, description=title)
