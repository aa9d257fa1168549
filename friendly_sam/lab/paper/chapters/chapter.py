"""One experiment of the paper as a chapter: tables, verdicts and where every number came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from friendly_sam.lab.counting import counted
from friendly_sam.lab.paper.chapters.panels import panels
from friendly_sam.lab.paper.claims import Judgement, judge_all
from friendly_sam.lab.paper.experiment import Experiment
from friendly_sam.lab.paper.printed import printed
from friendly_sam.lab.paper.results import Measured, Results
from friendly_sam.lab.paper.tuned_record import TunedRecord
from friendly_sam.lab.plotting.panels import Panel
from friendly_sam.lab.records.run import Run
from friendly_sam.lab.report.tables import Table
from friendly_sam.lab.statistics import summarize


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """What the page shows of an experiment."""

    experiment: Experiment
    mapping: str
    command: str
    measured: Table | None = None
    more: Sequence[tuple[str, Table]] = ()
    """Further tables with their titles."""
    caption: str = ""
    sweep: Table | None = None
    """What the choice on validation images was made from."""
    printed: Table | None = None
    printed_where: str = ""
    judgements: Sequence[Judgement] = ()
    panels: Sequence[Panel] = ()
    figures: Sequence[tuple[Path, str]] = ()
    """SVG files made elsewhere, with their captions (theory)."""
    facts: Sequence[tuple[str, str]] = ()
    """Seeds, machine, time."""
    records: Sequence[tuple[str, str]] = ()
    """Cell and run folders, for every number."""
    notes: Sequence[str] = field(default_factory=tuple)
    """What is missing, plainly."""
    runs: Sequence[Run] = ()
    """Every run that it is made of."""
    tuned: Sequence[TunedRecord] = ()
    """Of an experiment that tunes every method alike: all that its tables are made of."""


def chapter(results: Results, command: str) -> Chapter:
    """Make the chapter of an experiment from its results."""
    experiment = results.experiment
    paper = printed(experiment.name)
    notes = []
    if experiment.one_setting:
        notes.append("About one setting of everything else, not about the best of each method.")
    if not results.runs:
        notes.append("Not run at this scale yet.")
    elif results.missing:
        total = len(results.missing) + len(results.runs)
        notes.append(
            f"Not finished: {len(results.missing)} of {counted(total, 'run')}; a sweep with a "
            "missing run chooses nothing, and comparisons use the seeds that both sides have."
        )
    return Chapter(
        experiment=experiment,
        mapping=experiment.mapping[results.scale],
        command=command,
        measured=_measured(results),
        caption=_caption(results),
        sweep=_sweep(results) if "radius" in experiment.x_label else None,
        printed=None if paper is None else Table(header=paper.header, rows=paper.rows),
        printed_where="" if paper is None else paper.where,
        judgements=judge_all(experiment.claims, results),
        panels=panels(results),
        facts=facts(results.runs),
        records=_records(results),
        notes=notes,
        runs=results.runs,
    )


# -- tables ---------------------------------------------------------------------------------


def _measured(results: Results) -> Table | None:
    if not results.runs:
        return None
    kind = results.experiment.drawing
    if kind == "lines":
        return _over_x(results)
    if kind == "spectrum":
        return _eigenvalues(results)
    return _by_panel(results)


def _by_panel(results: Results) -> Table:
    metric = results.experiment.metric
    rows = []
    for panel in results.panels():
        row = [panel]
        for method in results.methods():
            cell = results.chosen(panel, method)
            row.append(show(cell, metric))
        rows.append(row)
    return Table(header=["", *results.methods()], rows=rows)


def _over_x(results: Results) -> Table:
    rows = []
    for panel in results.panels():
        here = [c.cell for c in results.cells if c.cell.panel == panel]
        for x in sorted({cell.x for cell in here if cell.x is not None}):
            cells = [results.at(panel, method, x) for method in results.methods()]
            rows.append([panel, f"{x:g}", *[show(cell) for cell in cells]])
        level = [m for m in results.methods() if any(c.method == m and c.x is None for c in here)]
        if level:
            values = [
                show(results.chosen(panel, m)) if m in level else "" for m in results.methods()
            ]
            rows.append([panel, "-", *values])
    return Table(header=["", results.experiment.x_label, *results.methods()], rows=rows)


def _eigenvalues(results: Results) -> Table:
    rows = []
    for panel in results.panels():
        for method in results.methods():
            cell = results.chosen(panel, method)
            row = [f"{panel}: {method}"]
            row += [show(cell, metric, 3) for metric in ("lambda1", "ratio", "test_accuracy")]
            rows.append(row)
    return Table(header=["", "λ1", "λ1/λ5", "test accuracy, %"], rows=rows)


def _sweep(results: Results) -> Table | None:
    rows = []
    for panel in results.panels():
        for method in results.methods():
            cells = [c for c in results.sweep(panel, method) if c.cell.x is not None]
            chosen = results.chosen(panel, method)
            if len(cells) < 2:
                continue
            for cell in cells:
                mark = "chosen" if cell is chosen else ""
                row = [f"{panel}: {method}", f"{cell.cell.x:g}", show(cell, "validation_accuracy")]
                rows.append([*row, show(cell), mark])
    if not rows or not any(c.scores("validation_accuracy") for c in results.cells if _validated(c)):
        return None
    header = ["", results.experiment.x_label, "validation, %", "test, %", ""]
    return Table(header=header, rows=rows)


def _validated(cell: Measured) -> bool:
    return any(run.series("validation_accuracy") for run in cell.runs.values())


def show(cell: Measured | None, metric: str = "test_accuracy", digits: int = 2) -> str:
    """Write mean ± standard deviation; n where runs are missing."""
    if cell is None or not cell.runs:
        return "-"
    if metric == "validation_accuracy" and not _validated(cell):
        return "-"
    values = list(cell.scores(metric).values())
    if not values:
        return "-"
    summary = summarize(values)
    text = f"{summary.mean:.{digits}f}"
    if summary.n > 1:
        text += f" ± {summary.std:.{digits}f}"
    return text if len(values) == len(cell.cell.runs) else f"{text} (n={summary.n})"


def _caption(results: Results) -> str:
    if not results.runs:
        return ""
    n = max(len(cell.runs) for cell in results.cells)
    what = {"train_loss": "Training loss", "lambda1": "Spectrum"}.get(
        results.experiment.metric, "Test accuracy in %"
    )
    over = counted(n, "seed")
    return f"{what} at the end of training, mean ± sample standard deviation over n = {over}."


# -- where it came from ---------------------------------------------------------------------


def facts(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Return seeds, number of runs, machine and time."""
    if not runs:
        return []
    seeds = sorted({run.config.seed for run in runs})
    starts = [run.environment.get("starts", [{}])[-1] for run in runs]
    machines = {
        f"{s.get('processor', '?')}, {s.get('cores', '?')} cores"
        + (f", {len(s['gpus'])} x {s['gpus'][0]}" if s.get("gpus") else "")
        for s in starts
    }
    versions = {str(s.get("packages", {}).get("torch", "?")) for s in starts}
    seconds = sum(sum(run.series("seconds")) for run in runs)
    return [
        ("seeds", ", ".join(map(str, seeds))),
        ("runs", str(len(runs))),
        ("machine", "; ".join(sorted(machines))),
        ("torch", ", ".join(sorted(versions))),
        ("training time", f"{seconds / 60:.1f} min, summed over runs"),
    ]


def _records(results: Results) -> list[tuple[str, str]]:
    records = []
    for cell in results.cells:
        x = "" if cell.cell.x is None else f", {cell.cell.x:g}"
        names = ", ".join(run.folder.name for run in cell.runs.values())
        if names:
            records.append((f"{cell.cell.panel}: {cell.cell.method}{x}", names))
    return records
