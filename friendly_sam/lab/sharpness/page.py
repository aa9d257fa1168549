"""The page of `fsam sharpness`: runs side by side, from what was measured of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from friendly_sam.lab.plotting.canvas import Figure
from friendly_sam.lab.plotting.panels import Panel, Series
from friendly_sam.lab.records.run import Run
from friendly_sam.lab.report import page
from friendly_sam.lab.report.page import Page, Section
from friendly_sam.lab.report.runs import Group, group_runs
from friendly_sam.lab.report.tables import Table
from friendly_sam.lab.sharpness.figures import density_figure, landscape_figure
from friendly_sam.lab.statistics import paired_difference, summarize


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A run with its spectrum and the landscape around it."""

    run: Run
    spectrum: Mapping[str, Any]
    landscape: Mapping[str, Any]
    path: Mapping[str, Any] | None = None
    """The line from the first run's weights to this one's."""


def write_page(measured: Sequence[Measured], path: Path) -> tuple[list[Path], Table, str]:
    """Write the page and its figures; return all paths, the table, and the sentence."""
    groups = group_runs([one.run for one in measured])
    by_folder = {one.run.folder: one for one in measured}
    counts = Counter(group.family for group in groups)
    short = [g.runs[0].finished and counts[g.family] == 1 for g in groups]
    names = [g.family if is_short else g.name for g, is_short in zip(groups, short, strict=True)]
    named = list(zip(names, groups, strict=True))
    members = {name: [by_folder[run.folder] for run in group.runs] for name, group in named}
    families = {name: group.family for name, group in named}
    table, sentence = _table(measured), verdict(groups, by_folder)
    firsts = {name: found[0] for name, found in members.items()}
    shown = dict(list(firsts.items())[:4])
    density = Figure(
        name="density",
        alt="Spectral density of the Hessian of each run",
        paint=density_figure({n: (families[n], one.spectrum) for n, one in firsts.items()}),
    )
    landscape = Figure(
        name="landscape",
        alt="Loss on a plane through the weights of each run",
        paint=landscape_figure({name: one.landscape for name, one in shown.items()}),
        panels=len(shown),
        size=(3.4 * len(shown) + 1.2, 3.6),
    )
    one = measured[0]
    content = Page(
        title="How sharp are these minima?",
        lead=sentence,
        sections=[
            Section(title="At the last weights of each run", text=_how(one), table=table),
            Section(title="Largest eigenvalues", chart=_eigenvalues(members, families)),
            Section(title="Spectrum (first run of each group)", figure=density),
            Section(
                title="Along a random direction",
                text="Filter-normalised; the same random numbers for every run.",
                chart=_lines(members, families, "random", "x, in norms of the filters"),
            ),
            Section(
                title="Along SAM's step",
                text="The full gradient's direction, in units of the radius.",
                chart=_lines(members, families, "ascent", "x, in radii"),
            ),
            Section(title="On a plane (first run of each group)", figure=landscape),
            *_paths(measured),
        ],
        footer=f"{LEGEND} Bands: standard deviation over seeds.",
    )
    return page.write(content, path), table, sentence


LEGEND = (
    "Losses are over training images, not augmented, with the labels that were trained on. λ are "
    "eigenvalues of the Hessian of that loss (Lanczos), the trace is Hutchinson's estimate ± its "
    "standard error. Rises are L(w + ε) - L(w): full along the full gradient, batch along batch "
    "gradients (SAM), friendly along batch gradients less the full one (F-SAM), random along "
    "random ones, worst by projected ascent."
)


def verdict(groups: Sequence[Group], by_folder: Mapping[Path, Measured]) -> str:
    """Say whether F-SAM's λ_1 and λ_1/λ_5 are smaller than SAM's (the paper's appendix A7)."""
    chosen = {}
    for family in ("SAM", "F-SAM"):
        fitting = [g for g in groups if g.family == family and g.runs[0].finished]
        if len(fitting) != 1:
            return "Give one setting of SAM and one of F-SAM, finished, to judge the paper's claim."
        chosen[family] = fitting[0]
    parts = []
    for key, name in (("lambda1", "λ1"), ("ratio", "λ1/λ5")):
        values = {
            family: {run.config.seed: by_folder[run.folder].spectrum[key] for run in group.runs}
            for family, group in chosen.items()
        }
        means = {family: summarize(list(found.values())) for family, found in values.items()}
        words = f"{name} {means['SAM'].mean:.3g} with SAM, {means['F-SAM'].mean:.3g} with F-SAM"
        difference = paired_difference(values["F-SAM"], values["SAM"])
        if difference is None:
            parts.append(f"{words} (one seed: undecided)")
            continue
        outcome = (
            "undecided" if not difference.holds else "smaller" if difference.high < 0 else "larger"
        )
        parts.append(f"{words}, difference {difference}, n = {difference.n}: {outcome}")
    return (
        f"The paper's claim is that F-SAM has the smaller λ1 and λ1/λ5. Here: {'; '.join(parts)}."
    )


def _how(one: Measured) -> str:
    found = one.spectrum
    return (
        f"{found['images']:,} images, {found['weights']:,} weights; {found['normalisation']}; "
        f"eigenvalues to a residual of {found['settings']['tolerance']:g}; rises at radius "
        f"{one.landscape['settings']['rho']:g}."
    )


def _table(measured: Sequence[Measured]) -> Table:
    header = [
        "run", "test, %", "loss", "λ1", "λ5", "λ1/λ5", "trace", "converged",
        "rise: full", "batch", "friendly", "random", "worst",
    ]  # fmt: skip
    rows = []
    for one in measured:
        found, rises = one.spectrum, one.landscape["rises"]
        accuracy = one.run.series("test_accuracy")
        rows.append(
            [
                one.run.folder.name,
                f"{accuracy[-1]:.1f}" if accuracy else "",
                f"{found['loss']:.4f}",
                f"{found['lambda1']:.3g}",
                f"{found['lambda1'] / found['ratio']:.3g}",
                f"{found['ratio']:.3f}",
                f"{found['trace']:.3g} ± {found['trace_standard_error']:.2g}",
                "yes" if found["converged"] else "no",
                *[f"{rises[name]['mean']:.3g}" for name in ("full", "batch", "friendly", "random")],
                f"{one.landscape['worst']:.3g}",
            ]
        )
    return Table(header=header, rows=rows)


def _series(
    name: str, family: str, x: Sequence[float], rows: Sequence[Sequence[float]], points: bool
) -> Series:
    columns = [summarize(list(column)) for column in zip(*rows, strict=True)]
    error = [column.std for column in columns] if len(rows) > 1 else None
    means = [column.mean for column in columns]
    return Series(label=name, x=x, y=means, error=error, points=points, family=family)


def _eigenvalues(members: Mapping[str, Sequence[Measured]], families: Mapping[str, str]) -> Panel:
    series = []
    for name, found in members.items():
        rows = [one.spectrum["eigenvalues"] for one in found]
        x = list(range(1, min(map(len, rows)) + 1))
        series.append(_series(name, families[name], x, [row[: len(x)] for row in rows], True))
    words = "The largest eigenvalues of the Hessian"
    return Panel(title=words, x_label="number", y_label="eigenvalue", series=series, log_x=True)


def _lines(
    members: Mapping[str, Sequence[Measured]],
    families: Mapping[str, str],
    key: str,
    x_label: str,
) -> Panel:
    series = [
        _series(
            name,
            families[name],
            found[0].landscape[key]["x"],
            [one.landscape[key]["losses"] for one in found],
            False,
        )
        for name, found in members.items()
    ]
    return Panel(title="Loss around the weights", x_label=x_label, y_label="loss", series=series)


def _paths(measured: Sequence[Measured]) -> list[Section]:
    found = [one for one in measured if one.path is not None]
    if not found:
        return []
    series = [
        Series(
            label=f"to {one.run.folder.name}",
            x=one.path["x"],
            y=one.path["losses"],
            points=False,
        )
        for one in found
        if one.path is not None
    ]
    start = measured[0].run.folder.name
    chart = Panel(title=f"From {start}", x_label="x", y_label="loss", series=series)
    words = f"The loss on the training images of {start}; other seeds were trained on others."
    return [Section(title="Between the weights of two runs", text=words, chart=chart)]
