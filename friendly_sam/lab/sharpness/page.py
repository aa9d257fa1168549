"""The page of `fsam sharpness`: runs side by side, from what was measured of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from friendly_sam.lab.counting import counted
from friendly_sam.lab.plotting.canvas import Figure
from friendly_sam.lab.plotting.panels import Panel, Series
from friendly_sam.lab.report import page
from friendly_sam.lab.report.groups import Group, Task, split_by_data
from friendly_sam.lab.report.page import Page, Section
from friendly_sam.lab.report.runs import label_key
from friendly_sam.lab.report.tables import Table
from friendly_sam.lab.sharpness.figures import density_figure, landscape_figure, landscape_size
from friendly_sam.lab.sharpness.measured import Measured, curvature_table, rises_table
from friendly_sam.lab.sharpness.verdict import UNJUDGED, flatness_warning, verdict
from friendly_sam.lab.statistics import summarize

PLANES = 6
"""Planes that are drawn for a data set."""


def write_page(measured: Sequence[Measured], path: Path) -> tuple[list[Path], list[Table], str]:
    """Write the page and its figures; return all paths, the tables, and what to take away."""
    tasks = split_by_data([one.run for one in measured])
    by_folder = {one.run.folder: one for one in measured}
    lead = " ".join(filter(None, [flatness_warning(measured), _verdicts(tasks, by_folder)]))
    tables = [curvature_table(measured), rises_table(measured)]
    content = Page(
        title="How sharp are these minima?",
        lead=lead,
        sections=[
            Section(title="At the last weights", text=_how(measured[0]), table=tables[0]),
            Section(
                title="How far the loss rises",
                text=f"L(w + ε) - L(w) at radius {measured[0].landscape['settings']['rho']:g}.",
                table=tables[1],
            ),
            *[section for task in tasks for section in _sections(task, by_folder)],
        ],
        footer=f"{LEGEND} Bands: standard deviation over seeds.",
    )
    return page.write(content, path), tables, lead


LEGEND = (
    "Losses are over training images, not augmented, with the labels that were trained on. λ are "
    "eigenvalues of the Hessian of that loss (Lanczos), the trace is Hutchinson's estimate ± its "
    "standard error. Rises: full along the full gradient, batch along batch gradients (SAM), "
    "friendly along batch gradients less the full one (F-SAM), random along random ones, worst by "
    "projected ascent; -: one batch holds all images, so use more --images."
)


def _verdicts(tasks: Sequence[Task], by_folder: Mapping[Path, Measured]) -> str:
    """Judge the paper's claim on each data set where it can be; say once where it cannot."""
    said = {task.name: verdict(task.groups, by_folder) for task in tasks}
    judged = {name: words for name, words in said.items() if words is not None}
    if not judged:
        return UNJUDGED
    prefix = "" if len(tasks) == 1 else "On {}: "
    return " ".join(prefix.format(name) + words for name, words in judged.items())


def _how(one: Measured) -> str:
    found = one.spectrum
    return (
        f"{counted(found['images'], 'image')}, {found['weights']:,} weights in the first run; "
        f"{found['normalisation']}; eigenvalues to a residual of "
        f"{found['settings']['tolerance']:g}."
    )


def _sections(task: Task, by_folder: Mapping[Path, Measured]) -> list[Section]:
    """Return the figures of one data set."""
    members: dict[str, list[Measured]] = {}
    families: dict[str, str] = {}
    for group in task.groups:
        name = _name(group, by_folder)
        members[name] = [by_folder[run.folder] for run in group.runs]
        families[name] = group.family
    firsts = {name: found[0] for name, found in members.items()}
    planes = {name: one.landscape for name, one in list(firsts.items())[:PLANES]}
    several = "" if len(planes) == len(firsts) else f", the first {PLANES} of {len(firsts)}"
    of_first = f"The first seed of each group{several}."
    return [
        Section(
            title=f"{task.name}: eigenvalues",
            chart=_eigenvalues(members, families),
            key=label_key(task.groups),
        ),
        Section(
            title=f"{task.name}: spectrum",
            text="The first seed of each group.",
            figure=Figure(
                name=f"density-{_slug(task.name)}",
                alt="Spectral density of the Hessian of each run",
                paint=density_figure({n: (families[n], one.spectrum) for n, one in firsts.items()}),
            ),
        ),
        Section(
            title=f"{task.name}: along a random direction",
            text="Filter-normalised; the same random numbers for every run.",
            chart=_lines(members, families, "random", "distance, in norms of the filters"),
        ),
        Section(
            title=f"{task.name}: along SAM's step",
            text="The full gradient's direction.",
            chart=_lines(members, families, "ascent", "distance, in radii"),
        ),
        Section(
            title=f"{task.name}: on a plane",
            text=f"{of_first} Each has colours of its own; the contours say how high they lie.",
            figure=Figure(
                name=f"landscape-{_slug(task.name)}",
                alt="Loss on a plane through the weights of each run",
                paint=landscape_figure(planes),
                panels=len(planes),
                columns=min(2, len(planes)),
                size=landscape_size(len(planes)),
                narrow=landscape_size(len(planes), columns=1),
            ),
        ),
        *_paths(task, by_folder),
    ]


def _name(group: Group, by_folder: Mapping[Path, Measured]) -> str:
    learned = all(by_folder[run.folder].learned for run in group.runs)
    return group.label if learned else f"{group.label} (did not learn)"


def _slug(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)


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
    return Panel(
        title="",
        x_label="number, from the largest",
        y_label="eigenvalue of the Hessian",
        series=series,
        whole_x=True,
        description="The largest eigenvalues of the Hessian",
    )


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
    return Panel(
        title="", x_label=x_label, y_label="training loss", series=series,
        description=f"Loss around the weights, {x_label}",
    )  # fmt: skip


def _paths(task: Task, by_folder: Mapping[Path, Measured]) -> list[Section]:
    ends = [
        (group.family, one, one.path)
        for group in task.groups
        for run in group.runs
        if (one := by_folder[run.folder]).path is not None and one.path_from is not None
    ]
    if not ends:
        return []
    series = [
        Series(
            label=one.run.folder.name, x=path["x"], y=path["losses"], points=False, family=family
        )
        for family, one, path in ends
        if path is not None
    ]
    start = ends[0][1].path_from
    chart = Panel(
        title="",
        x_label=f"way from {start} (0) to each run (1)",
        y_label="training loss",
        series=series,
        description=f"Loss on the straight line from {start} to each run",
    )
    words = f"The loss on the training images of {start}; other seeds were trained on others."
    return [Section(title=f"{task.name}: between two runs", text=words, chart=chart)]
