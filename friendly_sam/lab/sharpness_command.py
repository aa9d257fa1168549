"""`fsam sharpness`: how sharp the minima of recorded runs are, side by side."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from friendly_sam.lab.errors import LabError
from friendly_sam.lab.options import Parser

EXAMPLE = """\
examples:
  fsam sharpness runs/digits-mlp-sgd runs/digits-mlp-sam runs/digits-mlp-fsam
  fsam sharpness runs --images 1000 --output sharpness.html
"""


def sharpness(arguments: Sequence[str]) -> int:
    """Measure runs and write the page; give the exit code."""
    options = _parse(arguments)
    from friendly_sam.lab.files import check_page
    from friendly_sam.lab.report.console import plain_table
    from friendly_sam.lab.report.runs import find_runs
    from friendly_sam.lab.sharpness_of_runs import measure
    from friendly_sam.lab.sharpness_page import LEGEND, Measured, write_page
    from friendly_sam.lab.sharpness_surroundings import path_between, surroundings

    check_page(options.output)
    runs = find_runs(options.runs)
    measured = []
    for number, run in enumerate(runs, start=1):
        name = f"[{number}/{len(runs)}] {run.folder.name}"
        with _Bar(f"{name}: spectrum") as bar:
            spectrum = measure(
                run.folder,
                data_size=options.images,
                tolerance=options.tolerance,
                mode=options.mode,
                progress=bar,
            )
        with _Bar(f"{name}: landscape") as bar:
            around = surroundings(
                run.folder,
                rho=options.rho,
                data_size=options.images,
                grid=options.grid,
                extent=options.extent,
                mode=options.mode,
                progress=bar,
            )
        path = None
        if number > 1:
            path = path_between(runs[0].folder, run.folder, data_size=options.images)
        measured.append(Measured(run=run, spectrum=spectrum, around=around, path=path))
    paths, table, sentence = write_page(measured, options.output)
    print(plain_table(table))
    print(f"\n{LEGEND}\n\n{sentence}\n\nPage: {paths[0]} (pictures beside it: {len(paths) - 1})")
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
    add("--output", type=Path, default=Path("sharpness.html"), help="the page")
    add("--images", type=int, default=2000, help="training images to use (default 2000)")
    add("--rho", type=float, default=0.1, help="radius of the rises (default 0.1)")
    add("--tolerance", type=float, default=1e-3, help="of the eigenvalues (default 0.001)")
    add("--grid", type=int, default=11, help="points a side of the plane (default 11)")
    add("--extent", type=float, default=1.0, help="how far to look, in filter norms (default 1)")
    add(
        "--mode",
        choices=("evaluation", "batch"),
        default="evaluation",
        help="BatchNorm with running statistics (default) or with those of each batch",
    )
    options = parser.parse_args(arguments)
    for name, least in (("images", 1), ("grid", 3)):
        if getattr(options, name) < least:
            raise LabError(f"--{name} must be at least {least}, got {getattr(options, name)}")
    for name in ("rho", "tolerance", "extent"):
        value = getattr(options, name)
        if not 0 < value < float("inf"):
            raise LabError(f"--{name} must be greater than 0, got {value:g}")
    return options


class _Bar:
    """A progress bar on a terminal, one line elsewhere; called with (done, of all)."""

    def __init__(self, words: str) -> None:
        self.words = words
        self.bar: Any = None
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import Progress

            self.bar = Progress(console=Console(stderr=True), transient=True)
            self.task = self.bar.add_task(words, total=None)

    def __enter__(self) -> _Bar:
        if self.bar is None:
            print(self.words, file=sys.stderr, flush=True)
        else:
            self.bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def __call__(self, done: int, most: int) -> None:
        if self.bar is not None:
            self.bar.update(self.task, completed=done, total=most)
