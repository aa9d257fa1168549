"""The tables and the figure of an experiment that tunes every method alike, from its records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from friendly_sam.lab.counting import counted
from friendly_sam.lab.paper.chapters.chapter import Chapter, chapter
from friendly_sam.lab.paper.comparisons import Pair, compare, power
from friendly_sam.lab.paper.results import Results, Scores
from friendly_sam.lab.paper.tuned_record import Entry, Trial, TunedRecord, tuned_records
from friendly_sam.lab.plotting.panels import Panel, Series
from friendly_sam.lab.report.tables import Table
from friendly_sam.lab.statistics import interval

NAMES = {
    "base.lr": "learning rate",
    "base.weight_decay": "weight decay",
    "method.rho": "ρ",
    "method.decay": "λ",
    "model.batch_norm": "BatchNorm",
}
"""Settings as tables have them; others go by their own names."""


def accuracy_table(records: Sequence[TunedRecord]) -> Table:
    """Return accuracy, cost and the settings that were chosen, a line per contender."""
    rows = [
        [
            _name(records, record, entry),
            f"{with_interval(entry.last)}{_missing(entry)}",
            f"{with_interval(entry.preferred)}{_missing(entry)}",
            "failed" if entry.chosen.validation is None else f"{entry.chosen.validation:.2f}",
            f"{entry.passes:.2f}",
            "-" if entry.cost is None else f"{entry.cost:.2f}",
            _settings(entry),
        ]
        for record in records
        for entry in record.entries
    ]
    header = ["", "last epoch, %", "epoch validation prefers, %", "validation in the search, %"]
    fullest = max((entry.chosen.settings for r in records for entry in r.entries), key=len)
    header += ["passes / base's", "time / base's"]
    header.append(f"chosen: {', '.join(NAMES.get(name, name) for name in fullest)}")
    return Table(header=header, rows=rows)


def _missing(entry: Entry) -> str:
    seeds = len(entry.last)
    return f" (n={seeds} of {seeds + entry.missing})" if entry.missing else ""


def pairs(records: Sequence[TunedRecord]) -> list[Pair]:
    """Return every contender with the base optimizer of its task."""
    return [(entry, record.entries[0]) for record in records for entry in record.entries[1:]]


def against_table(records: Sequence[TunedRecord]) -> Table:
    """Return the difference of each contender from the base optimizer, at both epochs."""
    last, preferred = compare(pairs(records)), compare(pairs(records), "preferred")
    names = {
        id(entry): _name(records, record, entry) for record in records for entry in record.entries
    }
    rows = [
        [names[id(one.entry)], str(one), one.verdict, str(two), two.verdict]
        for one, two in zip(last, preferred, strict=True)
    ]
    return Table(header=["", "last epoch", "", "epoch validation prefers", ""], rows=rows)


def _name(records: Sequence[TunedRecord], record: TunedRecord, entry: Entry) -> str:
    return entry.name if len(records) == 1 else f"{record.task}: {entry.name}"


def trials_table(records: Sequence[TunedRecord]) -> Table:
    """Return every trial of the search, and what was chosen."""
    used = {n for r in records for e in r.entries for t in e.trials for n in t.settings}
    columns = [n for n in NAMES if n in used] + sorted(used - NAMES.keys())
    rows = []
    for record in records:
        for entry in record.entries:
            for number, trial in enumerate(entry.trials, start=1):
                rows.append(
                    [
                        _name(records, record, entry),
                        f"{number}{' (near)' if number > entry.wide else ''}",
                        *[_show(trial, name) for name in columns],
                        "failed" if trial.validation is None else f"{trial.validation:.2f}",
                        "chosen" if trial == entry.chosen else "",
                    ]
                )
    header = ["", "trial", *[NAMES.get(n, n) for n in columns], "validation, %", ""]
    return Table(header=header, rows=rows)


def _show(trial: Trial, name: str) -> str:
    value = trial.settings.get(name, "-")
    return f"{value:g}" if isinstance(value, float) else str(value)


def search_table(records: Sequence[TunedRecord]) -> Table:
    """Return what each contender was searched over, and which settings mattered."""
    rows = [
        [
            _name(records, record, entry),
            str(len(entry.trials)),
            "; ".join(f"{NAMES.get(name, name)} {words}" for name, words in entry.space.items()),
            ", ".join(f"{NAMES.get(n, n)} {share:.0%}" for n, share in entry.importance.items()),
            ", ".join(NAMES.get(name, name) for name in entry.edge) or "-",
        ]
        for record in records
        for entry in record.entries
    ]
    header = ["", "trials", "searched", "importance (fANOVA)", "chosen at the edge"]
    return Table(header=header, rows=rows)


def caption(records: Sequence[TunedRecord]) -> str:
    """Say what the tables hold."""
    base = records[0].entries[0]
    n = max(len(entry.last) for record in records for entry in record.entries)
    text = (
        f"Test accuracy with its 95 % t-interval over n = {n} fresh seeds, each contender with the "
        f"best of {base.wide} + {counted(len(base.trials) - base.wide, 'trial')}; differences from "
        f"{base.name} are paired by seed, with the 95 % t-interval in brackets and p after Holm's "
        "correction for the number of differences in the table. `*`: the choice lies at the edge "
        "of all that was searched."
    )
    found = power(pairs(records))
    if found is not None:
        text += (
            f" {counted(n, 'seed')} find a difference of {found:.1f} points in four of five "
            "cases (median, before correction)."
        )
    return text


def cost_panels(records: Sequence[TunedRecord]) -> list[Panel]:
    """Draw accuracy against the measured cost, a panel per task where a cost was measured."""
    drawn = []
    for record in records:
        points = []
        for entry in record.entries:
            if entry.cost is not None and entry.last:
                found = interval(list(entry.last.values()))
                error = [found.reach] if found.n > 1 else None
                points.append(Series(label=entry.name, x=[entry.cost], y=[found.mean], error=error))
        if points:
            drawn.append(
                Panel(
                    title=record.task,
                    x_label=f"processor time of training / {record.entries[0].name}'s",
                    y_label="test accuracy at the last epoch, %",
                    series=points,
                    named=True,
                )
            )
    return drawn


def with_interval(scores: Scores) -> str:
    """Return mean and 95 % t-interval."""
    if not scores:
        return "-"
    found = interval(list(scores.values()))
    text = f"{found.mean:.2f}"
    return text if found.n < 2 else f"{text} [{found.low:.2f}, {found.high:.2f}]"


def _settings(entry: Entry) -> str:
    return ", ".join(
        f"{_show(entry.chosen, name)}{'*' if name in entry.edge else ''}"
        for name in entry.chosen.settings
    )


def tuned_chapter(results: Results, searched: Results, command: str) -> Chapter:
    """Make the chapter of an experiment that tunes every method alike."""
    made = chapter(results, command)
    tuning = results.experiment.tuning
    if not results.runs or tuning is None:
        return made
    made = replace(made, facts=[*made.facts, ("search seeds", _seeds(searched))])
    if tuning.report is not None:
        return made
    all_records = tuned_records(results, searched, command)
    records = [record for record in all_records if record.entries]
    waiting = [f"{r.task}: {', '.join(r.waiting)}" for r in all_records if r.waiting]
    return replace(
        made,
        measured=accuracy_table(records),
        more=[
            ("Difference from the base optimizer, in points", against_table(records)),
            ("The search", search_table(records)),
        ],
        caption=caption(records),
        sweep=trials_table(records),
        panels=cost_panels(records) if results.experiment.drawing == "cost" else made.panels,
        notes=[*made.notes, *([f"Not tuned yet: {'; '.join(waiting)}."] if waiting else [])],
        tuned=all_records,
    )


def _seeds(searched: Results) -> str:
    return ", ".join(map(str, sorted({run.config.seed for run in searched.runs})))
