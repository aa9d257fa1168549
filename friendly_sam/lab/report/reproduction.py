"""The report of a folder that `fsam reproduce` filled: page, Markdown, pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from friendly_sam.lab.errors import LabError
from friendly_sam.lab.experiments import EXPERIMENTS, experiment
from friendly_sam.lab.experiments.experiment import SCALES, Scale
from friendly_sam.lab.experiments.paper import source
from friendly_sam.lab.experiments.plan import MARK
from friendly_sam.lab.experiments.results import collect
from friendly_sam.lab.experiments.scales import COMMON, TUNING
from friendly_sam.lab.files import write_atomically
from friendly_sam.lab.report.book import Book, render, verdict_text
from friendly_sam.lab.report.chapter import Chapter, chapter
from friendly_sam.lab.report.figures import draw
from friendly_sam.lab.report.markdown import markdown
from friendly_sam.lab.report.theory_chapter import theory_chapter

LEADS: dict[Scale, str] = {
    "paper": "The published recipes.",
    "small": "Real images on a CPU, far smaller than the paper's setting: what holds here supports "
    "the paper, what does not hold here does not refute it.",
    "mini": "scikit-learn's digits, embedded, minutes on a CPU: what holds here supports the "
    "paper, what does not hold here does not refute it.",
}
FOOTER = (
    "Runs of one seed share images, wrong labels, initial weights and order. Differences are "
    "paired by seed, with the 95 % t-interval in brackets. A claim holds where every interval "
    "speaks for it, does not hold where one speaks against it, and is undecided otherwise or with "
    "fewer than 3 seeds. Dots are single runs. Settings are chosen on validation images, never "
    "on the test. The intervals are not corrected for their number: of twenty, one errs by chance."
)


def is_reproduction(folder: Path) -> bool:
    """Tell whether a folder was filled by `fsam reproduce`."""
    return (folder / MARK).is_file()


def write_report(folder: Path) -> tuple[Path, str]:
    """Write page, Markdown, records and pictures; give the page and a summary to print."""
    book = read_book(folder)
    write_atomically(folder / "index.html", render(book))
    pictures = _write_pictures(folder / "figures", book)
    write_atomically(folder / "results.md", markdown(book, pictures))
    write_atomically(folder / "records.jsonl", _records(book))
    width = max((len(c.experiment.name) for c in book.chapters), default=0)
    lines = [
        f"{c.experiment.name:<{width}}  {verdict_text(j):<22}  {j.text}"
        for c in book.chapters
        for j in c.judgements
    ]
    return folder / "index.html", "\n".join(lines)


def read_book(folder: Path) -> Book:
    """Read the records of every row that was asked for."""
    notes = _notes(folder / MARK)
    scale: Scale = notes["scale"]
    chapters: list[Chapter] = []
    for name, asked in notes["rows"].items():
        row = experiment(name)
        command = str(asked.get("command", f"fsam reproduce {name} --scale {scale}"))
        if row.drawing == "theory":
            chapters.append(theory_chapter(row, scale, folder, command))
        else:
            results = collect(row, scale, folder / "runs", asked.get("seeds"))
            chapters.append(chapter(results, command))
    return Book(
        title=f"Friendly-SAM, row by row: scale {scale}",
        lead=LEADS[scale],
        setting=COMMON[scale] if scale == "paper" else f"{COMMON[scale]} {TUNING}",
        source=source(),
        chapters=chapters,
        footer=FOOTER,
    )


def _notes(path: Path) -> dict[str, Any]:
    try:
        notes = json.loads(path.read_text(encoding="utf-8"))
        if notes["scale"] not in SCALES or not set(notes["rows"]) <= set(EXPERIMENTS):
            raise ValueError
    except OSError as error:
        raise LabError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise LabError(f"{path} is damaged; delete it and start again (runs are kept)") from error
    return dict(notes)


def _records(book: Book) -> str:
    """Give a line a run: what every number of the report can be computed from again."""
    lines = {
        run.folder.name: json.dumps(
            {
                "run": run.folder.name,
                "seed": run.config.seed,
                **{name: round(value, 4) for name, value in run.metrics[-1].items()},
                "train_seconds": round(sum(run.series("seconds")), 2),
                "commit": run.environment.get("starts", [{}])[-1].get("commit"),
            }
        )
        for found in book.chapters
        for run in found.runs
    }
    return "".join(f"{line}\n" for _, line in sorted(lines.items()))


def _write_pictures(folder: Path, book: Book) -> dict[str, list[str]]:
    """Write each row's picture as SVG, PNG and PDF; give the SVGs' paths from the page."""
    folder.mkdir(exist_ok=True)
    paths: dict[str, list[str]] = {}
    for found in book.chapters:
        name = found.experiment.name
        if found.panels:
            write_atomically(folder / f"{name}.svg", draw(found.panels, "svg"))
            write_atomically(folder / f"{name}.png", draw(found.panels, "png"))
            write_atomically(folder / f"{name}.pdf", draw(found.panels, "pdf"))
            paths[name] = [f"figures/{name}.svg"]
        if found.pictures:
            paths[name] = [f"figures/{path.name}" for path, _ in found.pictures]
    return paths
