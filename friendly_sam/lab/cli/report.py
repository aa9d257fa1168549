"""`fsam report`: tables, curves and a page of any runs."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from friendly_sam.lab.cli.parser import command_parser
from friendly_sam.lab.counting import counted
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.files import check_page, write_atomically
from friendly_sam.lab.paper.reproduction_folder import is_reproduction
from friendly_sam.lab.records.claim import RECORDS, holds_run

_DESCRIPTION = """\
Compare any runs: for each data set a table and curves, as a page that needs nothing else.

A folder stands for the runs right inside it; folders of whole experiments (demo, tune,
reproduce) are left out beside runs and read where they are named alone. The table is also written
beside the page as CSV and JSON.
"""


def run(arguments: Sequence[str]) -> int:
    """Run `fsam report`."""
    parser = command_parser(
        "report",
        _DESCRIPTION,
        "  fsam report runs/digits-mlp-*\n  fsam report runs --output comparison.html",
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of runs")
    parser.add_argument("--output", type=Path, help="the page (default: report.html)")
    options = parser.parse_args(arguments)
    if len(options.runs) == 1 and is_reproduction(options.runs[0]):
        return _report_reproduction(options.runs[0], options.output)
    target = options.output or Path("report.html")
    check_page(target)
    table = target.with_suffix(".json")
    if table.name in RECORDS and holds_run(target.parent):
        raise LabError(f"--output {target}: {table} is a record of the run there")
    return _report_runs(options.runs, target)


def _report_runs(folders: Sequence[Path], target: Path) -> int:
    from friendly_sam.lab.report import page
    from friendly_sam.lab.report.export import as_csv, as_json
    from friendly_sam.lab.report.finding import find_runs
    from friendly_sam.lab.report.runs import (
        by_task,
        compare,
        key_table,
        results_table,
        runs_page,
        summary,
    )
    from friendly_sam.lab.report.tables import WIDTH, plain_table

    found = find_runs(folders)
    rows = compare(found.runs)
    for task, of_task in by_task(rows).items():
        print(f"{task}\n\n{plain_table(results_table(of_task))}\n")
        key = key_table(of_task)
        for label, name in key.rows if key is not None else ():
            print(textwrap.fill(f"{label}: {name}", WIDTH, subsequent_indent="  "))
        print("" if key is None else "\n", end="")
    text = summary(found.runs, rows, found.skipped)
    print(textwrap.fill(text, WIDTH))
    paths = page.write(runs_page(rows, text), target)
    tables = {target.with_suffix(".csv"): as_csv(rows), target.with_suffix(".json"): as_json(rows)}
    for path, text in tables.items():
        write_atomically(path, text)
    figures = counted(sum(path.suffix == ".svg" for path in paths), "figure")
    print(f"\nPage: {target} (beside it: {figures} as SVG and PNG, the table as CSV and JSON)")
    return 0


def _report_reproduction(folder: Path, output: Path | None) -> int:
    if output is not None:
        raise LabError(f"--output does not apply to {folder}: its page is inside it")
    from friendly_sam.lab.paper.chapters.write import write_report

    page, summary = write_report(folder)
    print(f"{summary}\n\nPage: {page}")
    return 0
