"""The tables and the figure of an experiment that tunes every method alike, from its record."""

from __future__ import annotations

from dataclasses import replace

from friendly_sam.lab.paper.chapters.chapter import Chapter, chapter
from friendly_sam.lab.paper.comparisons import compare, power
from friendly_sam.lab.paper.results import Results, Scores
from friendly_sam.lab.paper.tuned_record import Entry, TunedRecord, tuned_record
from friendly_sam.lab.plotting.panels import Panel, Series
from friendly_sam.lab.report.tables import Table
from friendly_sam.lab.statistics import interval

NAMES = {"lr": "learning rate", "weight_decay": "weight decay", "rho": "ρ"}


def accuracy_table(record: TunedRecord) -> Table:
    """Return accuracy, cost and the settings that were chosen, a line per contender."""
    rows = [
        [
            entry.name,
            with_interval(entry.last),
            with_interval(entry.preferred),
            f"{entry.passes:.2f}",
            "-" if entry.cost is None else f"{entry.cost:.2f}",
            _settings(entry),
        ]
        for entry in record.entries
    ]
    header = ["", "last epoch, %", "epoch validation prefers, %", "passes / SGD's"]
    header += ["time / SGD's", "learning rate, weight decay, ρ"]
    return Table(header=header, rows=rows)


def against_table(record: TunedRecord) -> Table:
    """Return the difference of each contender from the base optimizer, at both epochs."""
    base = record.entries[0]
    last = {found.entry.name: found for found in compare(record.entries, base)}
    preferred = {found.entry.name: found for found in compare(record.entries, base, "preferred")}
    rows = [
        [name, str(found), found.verdict, str(preferred[name]), preferred[name].verdict]
        for name, found in last.items()
    ]
    header = ["", "last epoch", "", "epoch validation prefers", ""]
    return Table(header=header, rows=rows)


def trials_table(record: TunedRecord) -> Table:
    """Return every trial of the search, and what was chosen."""
    rows = []
    for entry in record.entries:
        for trial in entry.trials:
            mark = "chosen" if trial == entry.chosen else ""
            score = "failed" if trial.validation is None else f"{trial.validation:.2f}"
            values = [f"{trial.settings[n]:g}" if n in trial.settings else "-" for n in NAMES]
            rows.append([entry.name, *values, score, mark])
    return Table(header=["", *NAMES.values(), "validation, %", ""], rows=rows)


def caption(record: TunedRecord) -> str:
    """Say what the tables hold."""
    base = record.entries[0]
    n = len(base.last)
    text = (
        f"Test accuracy with its 95 % t-interval over n = {n} fresh seeds; differences from "
        f"{base.name} are paired by seed, with the 95 % t-interval in brackets and p after Holm's "
        "correction for the number of contenders. `*`: the choice lies at the edge of its range."
    )
    found = power(record.entries, base)
    if found is not None:
        text += (
            f" {n} seeds find a difference of {found:.1f} points in four of five cases (median)."
        )
    return text


def cost_panel(record: TunedRecord) -> list[Panel]:
    """Draw accuracy against the measured cost; empty where no cost was measured."""
    points = []
    for entry in record.entries:
        if entry.cost is not None and entry.last:
            found = interval(list(entry.last.values()))
            error = [found.reach] if found.n > 1 else None
            points.append(Series(label=entry.name, x=[entry.cost], y=[found.mean], error=error))
    if not points:
        return []
    panel = Panel(
        title=record.task,
        x_label="processor time of training / SGD's",
        y_label="test accuracy at the last epoch, %",
        series=points,
        named=True,
    )
    return [panel]


def with_interval(scores: Scores) -> str:
    """Return mean and 95 % t-interval."""
    if not scores:
        return "-"
    found = interval(list(scores.values()))
    text = f"{found.mean:.2f}"
    return text if found.n < 2 else f"{text} [{found.low:.2f}, {found.high:.2f}]"


def _settings(entry: Entry) -> str:
    values = entry.chosen.settings
    return ", ".join(
        f"{value:g}{'*' if name in entry.edge else ''}" for name, value in values.items()
    )


def tuned_chapter(results: Results, searched: Results, command: str) -> Chapter:
    """Make the chapter of an experiment that tunes every method alike."""
    made = chapter(results, command)
    if not results.runs:
        return made
    record = tuned_record(results, searched, command)
    notes = [f"Not tuned yet: {', '.join(record.waiting)}."] if record.waiting else []
    return replace(
        made,
        measured=accuracy_table(record),
        more=[("Difference from the base optimizer, in points", against_table(record))],
        caption=caption(record),
        sweep=trials_table(record),
        panels=cost_panel(record),
        facts=[*made.facts, ("search seeds", ", ".join(map(str, record.search_seeds)))],
        notes=[*made.notes, *notes],
        record=record,
    )
