"""From the results of an experiment to the panels of its figure."""

from __future__ import annotations

from collections.abc import Sequence

from friendly_sam.lab.paper.results import Measured, Results
from friendly_sam.lab.plotting.panels import Bar, Panel, Series
from friendly_sam.lab.sharpness.densities import at_one_width
from friendly_sam.lab.sharpness.kept import read_density
from friendly_sam.lab.statistics import summarize

Y_LABELS = {
    "test_accuracy": "test accuracy, %",
    "train_loss": "training loss",
    "lambda1": "largest eigenvalue λ1",
}


def panels(results: Results) -> list[Panel]:
    """Draw an experiment as its kind asks for; panels with nothing to show are left out."""
    draw = {
        "bars": _bars,
        "lines": _lines,
        "training": _training,
        "spectrum": _spectrum,
    }.get(results.experiment.drawing)
    return [] if draw is None else draw(results)


def _bars(results: Results) -> list[Panel]:
    drawn = []
    for panel in results.panels():
        bars = []
        for method in results.methods():
            cell = results.chosen(panel, method)
            if cell is not None:
                values = list(cell.scores(results.experiment.metric).values())
                bars.append(_bar(method, values))
        if bars:
            y_label = Y_LABELS[results.experiment.metric]
            drawn.append(Panel(title=panel, y_label=y_label, bars=bars))
    return drawn


def _bar(label: str, values: Sequence[float]) -> Bar:
    summary = summarize(values)
    error = summary.std if summary.n > 1 else None
    return Bar(label=label, height=summary.mean, error=error, values=values)


def _lines(results: Results) -> list[Panel]:
    drawn = []
    for panel in results.panels():
        swept = [c.cell.x for c in results.cells if c.cell.panel == panel and c.cell.x is not None]
        curves = []
        for method in results.methods():
            cells = results.sweep(panel, method)
            if cells and swept:
                curves.append(_curve(method, cells, sorted(set(swept))))
        if curves:
            drawn.append(
                Panel(
                    title=panel,
                    x_label=results.experiment.x_label,
                    y_label=Y_LABELS["test_accuracy"],
                    series=curves,
                    log_x=results.experiment.log_x,
                )
            )
    return drawn


def _curve(method: str, cells: Sequence[Measured], swept: Sequence[float]) -> Series:
    """Return accuracy over x; a method without an x is a level line across."""
    summaries = [summarize(list(cell.scores().values())) for cell in cells]
    several = all(summary.n > 1 for summary in summaries)
    if cells[0].cell.x is None:
        ends = [swept[0], swept[-1]]
        error = [summaries[0].std] * 2 if several else None
        y = [summaries[0].mean] * 2
        return Series(label=method, x=ends, y=y, error=error, level=True)
    return Series(
        label=method,
        x=[cell.cell.x or 0.0 for cell in cells],
        y=[summary.mean for summary in summaries],
        error=[summary.std for summary in summaries] if several else None,
    )


def _training(results: Results) -> list[Panel]:
    drawn = []
    for metric in ("train_loss", "test_accuracy"):
        for panel in results.panels():
            curves = []
            for method in results.methods():
                cell = results.chosen(panel, method)
                if cell is not None:
                    curves.append(_over_epochs(method, cell, metric))
            if curves:
                drawn.append(
                    Panel(title=panel, x_label="epoch", y_label=Y_LABELS[metric], series=curves)
                )
    return drawn


def _over_epochs(method: str, cell: Measured, metric: str) -> Series:
    runs = list(cell.runs.values())
    lines = [run.series(metric) for run in runs]
    points = [summarize(values) for values in zip(*lines, strict=False)]
    return Series(
        label=method,
        x=runs[0].epochs(metric)[: len(points)] if runs else [],
        y=[point.mean for point in points],
        error=[point.std for point in points] if len(lines) > 1 else None,
        points=False,
    )


def _spectrum(results: Results) -> list[Panel]:
    """Draw the density of the least seed's spectrum, and λ1 and λ1/λ5 of all seeds."""
    drawn = []
    for panel in results.panels():
        densities = {}
        for method in results.methods():
            cell = results.chosen(panel, method)
            paths = (
                [] if cell is None else [r.folder / "sharpness.json" for r in cell.runs.values()]
            )
            if paths and paths[0].is_file():
                densities[method] = read_density(paths[0])
        curves = zip(densities, at_one_width(list(densities.values())), strict=True)
        if densities:
            drawn.append(
                Panel(
                    title=f"{panel}, first seed",
                    x_label="eigenvalue of the Hessian",
                    y_label="density",
                    series=[Series(label=m, x=x, y=y, points=False) for m, (x, y) in curves],
                    log_y=True,
                )
            )
        for metric, y_label in (("lambda1", Y_LABELS["lambda1"]), ("ratio", "ratio λ1/λ5")):
            found = {
                m: c.scores(metric) for m in results.methods() if (c := results.chosen(panel, m))
            }
            bars = [_bar(m, list(values.values())) for m, values in found.items() if values]
            if bars:
                drawn.append(Panel(title=panel, y_label=y_label, bars=bars))
    return drawn
