"""`fsam report`: for each data set, a table and curves of the runs on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from friendly_sam.lab.counting import counted
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.plotting.panels import Panel, Series
from friendly_sam.lab.records.run import Run
from friendly_sam.lab.report.groups import Group, Task, reference, split_by_data, state_of
from friendly_sam.lab.report.page import Page, Section
from friendly_sam.lab.report.tables import Table
from friendly_sam.lab.statistics import Difference, Summary, paired_difference, summarize

MOST = 12
"""Groups that are drawn for a data set; all are in the table."""
MOST_POINTS = 1000
"""Epochs of a curve that are drawn at least, where there are more."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """What a group of runs came to."""

    task: str
    group: Group
    accuracy: Summary
    best: Summary
    loss: Summary
    seconds: float
    against: str = ""
    """The label of the base optimizer that it is compared with."""
    difference: Difference | None = None


def compare(runs: Sequence[Run]) -> list[Row]:
    """Return a row for each group of runs that has finished an epoch, data set by data set."""
    rows = [row for task in split_by_data(runs) for row in _rows(task)]
    if not rows:
        if any(run.metrics and not run.config.engine.eval_test for run in runs):
            raise LabError(
                "these are trials of a search, which never look at the test images: train the "
                "settings that it chose, and report that run"
            )
        raise LabError("none of these runs has finished an epoch yet")
    return rows


def _rows(task: Task) -> list[Row]:
    measured = [group for group in task.groups if group.by_seed("test_accuracy")]
    measured.sort(key=lambda group: group.runs[0].config.method.name != "base")
    rows = []
    for group in measured:
        base = reference(group, measured)
        accuracy = group.by_seed("test_accuracy")
        seen = [run for run in group.runs if run.series("test_accuracy")]
        rows.append(
            Row(
                task=task.name,
                group=group,
                accuracy=summarize(list(accuracy.values())),
                best=summarize([best_epoch(run) for run in seen]),
                loss=_or_nan(list(group.by_seed("train_loss").values())),
                seconds=_or_nan([s for run in seen for s in run.series("seconds")]).mean,
                against="" if base is None else base.label,
                difference=None
                if base is None
                else paired_difference(accuracy, base.by_seed("test_accuracy")),
            )
        )
    return rows


def _or_nan(values: Sequence[float]) -> Summary:
    """Summarize values; not a number where a folder of others has none."""
    return summarize(values) if values else Summary(math.nan, math.nan, 0)


def best_epoch(run: Run) -> float:
    """Return the test accuracy at the epoch that validation prefers, or the best where it is not.

    Without validation images the test images themselves choose, which flatters the run.
    """
    test, chosen_by = run.series("test_accuracy"), run.series("validation_accuracy")
    if len(chosen_by) != len(test):
        return max(test)
    return test[max(range(len(test)), key=chosen_by.__getitem__)]


def runs_page(rows: Sequence[Row], text: str) -> Page:
    """Make the page of what `compare` found; `text` says what was read."""
    sections: list[Section] = []
    for task, of_task in by_task(rows).items():
        drawn = [row.group for row in sorted(of_task, key=lambda r: -r.accuracy.mean)[:MOST]]
        groups = [row.group for row in of_task if row.group in drawn]
        few = "" if len(groups) == len(of_task) else f" (the best {MOST} of {len(of_task)})"
        sections += [
            Section(title=task, table=results_table(of_task), key=key_table(of_task)),
            *[
                Section(title=f"{task}: {title.lower()}{few}", chart=_curves(groups, *curve))
                for title, *curve in (
                    ("Test accuracy", "test_accuracy", "test accuracy, %"),
                    ("Training loss", "train_loss", "training loss"),
                )
            ],
        ]
    return Page(title="Runs", lead=text, sections=sections, footer=FOOTER)


def by_task(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows of each data set."""
    tasks: dict[str, list[Row]] = {}
    for row in rows:
        tasks.setdefault(row.task, []).append(row)
    return tasks


FOOTER = (
    "Mean ± sample standard deviation over n seeds, at the last epoch; bands in the curves "
    "likewise. The best epoch is chosen on validation images where a run held some out, else on "
    "the test images themselves, which flatters it. Differences are against the base optimizer "
    "alone on the same data, paired by seed, with the 95 % t-interval."
)


def summary(runs: Sequence[Run], rows: Sequence[Row], skipped: Sequence[str]) -> str:
    """Say what was read, and what was left out."""
    groups = [group for task in split_by_data(runs) for group in task.groups]
    sets = len(by_task(rows))
    text = f"{counted(len(runs), 'run')} in {counted(len(groups), 'group')}"
    text += f" on {counted(sets, 'data set')}." if sets > 1 else "."
    unfinished = [f"{run.folder.name} ({state_of(run)})" for run in runs if not run.finished]
    if unfinished:
        text += f" Not finished, and counted apart: {', '.join(unfinished)}."
    again = [run.folder.name for group in groups for run in group.again]
    if again:
        text += f" Left out, because their settings and seed are there already: {', '.join(again)}."
    if skipped:
        text += f" Skipped, name them alone to see them: {', '.join(skipped)}."
    return text


def results_table(rows: Sequence[Row]) -> Table:
    """Return the table of one data set."""
    header = ["runs", "n", "test, %", "best epoch, %", "train loss", "s/epoch"]
    compared = [row for row in rows if row.difference is not None]
    bases = {row.against for row in compared}
    if compared:
        header.append(f"against {bases.pop()}" if len(bases) == 1 else "against the base")
    lines = []
    for row in rows:
        cells = [
            row.group.label,
            str(row.accuracy.n),
            _short(row.accuracy),
            _short(row.best),
            f"{row.loss.mean:.4f}",
            f"{row.seconds:.2f}",
        ]
        lines.append([*cells, *([str(row.difference or "")] if compared else [])])
    return Table(header=header, rows=lines)


def key_table(rows: Sequence[Row]) -> Table | None:
    """Return what the short labels of a table stand for; `None` where they say it all."""
    return label_key([row.group for row in rows])


def label_key(groups: Sequence[Group]) -> Table | None:
    """Return what the short labels of groups stand for; `None` where they say it all."""
    cut = [group for group in groups if group.label != group.name]
    if not cut:
        return None
    return Table(header=["label", "stands for"], rows=[[group.label, group.name] for group in cut])


def _short(summary: Summary) -> str:
    return str(summary).rpartition(" (")[0]


def _curves(groups: Sequence[Group], metric: str, unit: str) -> Panel:
    series = []
    for group in groups:
        runs = [run for run in group.runs if run.series(metric)]
        lines = [run.series(metric) for run in runs]
        shared = min((len(line) for line in lines), default=0)
        drawn = [*range(0, shared - 1, max(1, shared // MOST_POINTS)), *[shared - 1][:shared]]
        points = [summarize([line[index] for line in lines]) for index in drawn]
        epochs = runs[0].epochs(metric) if runs else []
        series.append(
            Series(
                label=group.label,
                x=[epochs[index] for index in drawn],
                y=[point.mean for point in points],
                error=[point.std for point in points] if len(lines) > 1 else None,
                points=shared == 1,
                family=group.family,
            )
        )
    return Panel(
        title="",
        x_label="epoch",
        whole_x=True,
        y_label=unit,
        series=series,
        ceiling=100 if unit.endswith("%") else math.inf,
        description=f"{unit} over epochs, a line for each group of runs",
    )
