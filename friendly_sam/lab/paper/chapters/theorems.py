"""The chapter of the theorems, from what `friendly_sam.lab.paper.theory` leaves in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

from friendly_sam.lab.errors import LabError
from friendly_sam.lab.paper.chapters.chapter import Chapter
from friendly_sam.lab.paper.claims import Comparison, Judgement, Verdict
from friendly_sam.lab.paper.experiment import Experiment, Scale
from friendly_sam.lab.reading import read_json_object
from friendly_sam.lab.report.tables import Table


def theory_chapter(experiment: Experiment, scale: Scale, folder: Path, command: str) -> Chapter:
    """Make the chapter; where nothing was measured yet, say so."""
    from friendly_sam.lab.paper.theory import figures  # imports torch

    path = folder / "theory" / "theory.json"
    if not path.is_file():
        note = "Not run at this scale yet."
        return Chapter(
            experiment=experiment, mapping=experiment.mapping[scale], command=command, notes=(note,)
        )
    try:
        values = read_json_object(path)
        judgements = [_judgement(claim) for claim in values.get("claims", [])]
        tables = [_table(table) for table in values.get("tables", [])]
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(f"{path} is damaged; delete it and run the experiment again") from error
    drawn = figures(path.parent, folder / "figures")
    return Chapter(
        experiment=experiment,
        mapping=experiment.mapping[scale],
        command=command,
        judgements=judgements,
        more=tables,
        figures=[(figure.svg, figure.caption) for figure in drawn],
    )


def _table(values: dict[str, Any]) -> tuple[str, Table]:
    rows = [[str(cell) for cell in row] for row in values["rows"]]
    return str(values["title"]), Table(header=[str(c) for c in values["columns"]], rows=rows)


def _judgement(claim: dict[str, Any]) -> Judgement:
    """Read a verdict; `undecided at 5` holds its number of seeds."""
    verdict, _, n = str(claim["verdict"]).partition(" at ")
    if verdict not in get_args(Verdict):
        raise ValueError(f"unknown verdict {verdict!r}")
    label = str(claim.get("detail", ""))
    detail = Comparison(label=label, difference=None, n=int(n) if n.isdigit() else 0)
    return Judgement(text=str(claim["text"]), verdict=verdict, comparisons=(detail,))  # type: ignore[arg-type]
