"""`fsam sharpness`: how sharp the minima of recorded runs are, side by side."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from pathlib import Path

from friendly_sam.lab.cli.parser import Parser, above_zero, whole
from friendly_sam.lab.counting import counted

MEASUREMENTS = ("sharpness.json", "landscape.json")
EXAMPLE = """\
examples:
  fsam sharpness runs/digits-mlp-sgd runs/digits-mlp-sam runs/digits-mlp-fsam
  fsam sharpness runs --images 1000 --output sharpness.html
"""


def run(arguments: Sequence[str]) -> int:
    """Measure runs and write the page; return the exit code."""
    options = _parse(arguments)
    from friendly_sam.lab.files import check_page, check_writable
    from friendly_sam.lab.report.finding import find_runs
    from friendly_sam.lab.report.groups import split_by_data
    from friendly_sam.lab.report.tables import WIDTH, plain_table
    from friendly_sam.lab.runner.progress import TaskProgress
    from friendly_sam.lab.sharpness.landscape import landscape, path_between
    from friendly_sam.lab.sharpness.measured import Measured
    from friendly_sam.lab.sharpness.page import LEGEND, write_page
    from friendly_sam.lab.sharpness.spectrum import measure

    check_page(options.output)
    found_runs = find_runs(options.runs)
    runs = found_runs.runs
    for found in runs:
        if not all((found.folder / name).exists() for name in MEASUREMENTS):
            check_writable(found.folder)  # before the first of them is measured
    first = {
        run.folder: task.groups[0].runs[0].folder
        for task in split_by_data(runs)
        for group in task.groups
        for run in (*group.runs, *group.again)
    }
    measured = []
    for number, found in enumerate(runs, start=1):
        name = f"[{number}/{len(runs)}] {found.folder.name}"
        with TaskProgress(f"{name}: spectrum") as bar:
            spectrum = measure(
                found.folder,
                data_size=options.images,
                tolerance=options.tolerance,
                mode=options.mode,
                progress=bar,
            )
        with TaskProgress(f"{name}: landscape") as bar:
            around = landscape(
                found.folder,
                rho=options.rho,
                data_size=options.images,
                grid=options.grid,
                extent=options.extent,
                mode=options.mode,
                progress=bar,
            )
        start = first[found.folder]
        path = None
        if start != found.folder:
            path = path_between(start, found.folder, data_size=options.images)
        measured.append(
            Measured(
                run=found, spectrum=spectrum, landscape=around, path=path, path_from=start.name
            )
        )
    paths, tables, lead = write_page(measured, options.output)
    for table in tables:
        print(plain_table(table), end="\n\n")
    for text in (LEGEND, lead, *[f"Skipped: {folder}" for folder in found_runs.skipped]):
        print(textwrap.fill(text, WIDTH), end="\n\n")
    figures = counted(sum(path.suffix == ".svg" for path in paths), "figure")
    print(f"Page: {paths[0]} (beside it: {figures} as SVG and PNG)")
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="fsam sharpness",
        description="How sharp the minima of recorded runs are: Hessian spectrum, loss rises, "
        "landscape.\nWhat was measured is kept in each run's folder and not measured again.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUN", help="folders of runs")
    add(
        "--output",
        type=Path,
        default=Path("sharpness.html"),
        help="the page (default sharpness.html)",
    )
    add("--images", type=whole(1), default=2000, help="training images to use (default 2000)")
    add("--rho", type=above_zero, default=0.1, help="radius of the loss rises (default 0.1)")
    add(
        "--tolerance",
        type=above_zero,
        default=1e-3,
        help="error of the eigenvalues (default 0.001)",
    )
    add("--grid", type=whole(3, 1001), default=11, help="points a side of the plane (default 11)")
    add(
        "--extent",
        type=above_zero,
        default=1.0,
        help="how far to look, in filter norms (default 1)",
    )
    add(
        "--mode",
        choices=("evaluation", "batch"),
        default="evaluation",
        help="BatchNorm with running statistics (default) or with those of each batch",
    )
    return parser.parse_args(arguments)
