"""`fsam report`: table, curves and a page of any runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from friendly_sam.lab.cli.parser import command_parser
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.files import check_page
from friendly_sam.lab.paper.reproduction_folder import is_reproduction


def run(arguments: Sequence[str]) -> int:
    """Run `fsam report`."""
    parser = command_parser(
        "report",
        "Curves and a table of any runs, as a page that needs nothing else.",
        "  fsam report runs/digits-mlp-*\n  fsam report runs --output comparison.html",
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of runs")
    parser.add_argument("--output", type=Path, help="the page (default: report.html)")
    options = parser.parse_args(arguments)
    if len(options.runs) == 1 and is_reproduction(options.runs[0]):
        return _report_reproduction(options.runs[0], options.output)
    from friendly_sam.lab.report import page
    from friendly_sam.lab.report.runs import find_runs, runs_page
    from friendly_sam.lab.report.tables import plain_table

    target = options.output or Path("report.html")
    check_page(target)
    content, table = runs_page(find_runs(options.runs))
    print(f"{plain_table(table)}\n\n{content.sections[0].text}")
    paths = page.write(content, target)
    print(f"\nPage: {paths[0]} (figures beside it: {len(paths) - 1})")
    return 0


def _report_reproduction(folder: Path, output: Path | None) -> int:
    if output is not None:
        raise LabError(f"--output does not apply to {folder}: its page is inside it")
    from friendly_sam.lab.paper.chapters.write import write_report

    page, summary = write_report(folder)
    print(f"{summary}\n\nPage: {page}")
    return 0
