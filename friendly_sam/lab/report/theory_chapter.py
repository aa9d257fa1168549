"""The chapter of the theorems, from what `friendly_sam.lab.theory` leaves in its folder."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

from friendly_sam.lab.errors import LabError
from friendly_sam.lab.experiments.claims import Comparison, Judgement
from friendly_sam.lab.experiments.experiment import Experiment, Scale
from friendly_sam.lab.experiments.measurements import THEORY, available
from friendly_sam.lab.report.chapter import Chapter
from friendly_sam.lab.report.page import Table


def theory_chapter(row: Experiment, scale: Scale, folder: Path, command: str) -> Chapter:
    """Make the chapter; where the module or its results are missing, say so."""
    path = folder / "theory.json"
    if not available(THEORY):
        return _empty(row, scale, command, f"The module {THEORY} is missing.")
    if not path.is_file():
        return _empty(row, scale, command, "Not run at this scale yet.")
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        judgements = [_judgement(claim) for claim in values.get("claims", [])]
        tables = [
            Table(header=list(map(str, t["header"])), rows=[list(map(str, r)) for r in t["rows"]])
            for t in values.get("tables", [])
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(f"{path} is damaged; delete it and run the row again") from error
    figures: Any = importlib.import_module(THEORY).figures
    drawn = figures(folder, folder)
    return Chapter(
        experiment=row,
        mapping=row.mapping[scale],
        command=command,
        judgements=judgements,
        measured=tables[0] if tables else None,
        more=tables[1:],
        pictures=[Path(figure.svg).read_bytes() for figure in drawn],
    )


def _judgement(claim: dict[str, Any]) -> Judgement:
    detail = Comparison(label=str(claim.get("detail", "")), difference=None)
    return Judgement(text=str(claim["text"]), verdict=claim["verdict"], comparisons=(detail,))


def _empty(row: Experiment, scale: Scale, command: str, note: str) -> Chapter:
    return Chapter(experiment=row, mapping=row.mapping[scale], command=command, notes=(note,))
