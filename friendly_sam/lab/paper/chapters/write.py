"""The report of a folder that `fsam reproduce` filled: page, Markdown, figures."""

from __future__ import annotations

import json
from pathlib import Path

from friendly_sam.lab.files import check_writable, make_folder, write_atomically
from friendly_sam.lab.paper.chapters.chapter import Chapter, chapter
from friendly_sam.lab.paper.chapters.html import Book, render, verdict_text
from friendly_sam.lab.paper.chapters.markdown import markdown
from friendly_sam.lab.paper.chapters.theorems import theory_chapter
from friendly_sam.lab.paper.chapters.tuned import tuned_chapter
from friendly_sam.lab.paper.experiment import SCALES, Scale
from friendly_sam.lab.paper.experiments import EXPERIMENTS, experiment
from friendly_sam.lab.paper.experiments.scales import COMMON
from friendly_sam.lab.paper.printed import source
from friendly_sam.lab.paper.reproduction_folder import damaged, read_requests
from friendly_sam.lab.paper.results import collect
from friendly_sam.lab.paper.tuned_record import as_json
from friendly_sam.lab.paper.tuning import is_tuned, search, settled
from friendly_sam.lab.plotting.canvas import Kind
from friendly_sam.lab.plotting.panels import draw_panels
from friendly_sam.lab.search.study import JOURNAL, Scored, write_journal

KINDS: tuple[Kind, ...] = ("svg", "png", "pdf")
LEADS: dict[Scale, str] = {
    "paper": "The published recipes.",
    "real": "A network pretrained on ImageNet, fine-tuned on few photographs, every method tuned "
    "alike: smaller than the paper's setting; what holds here supports the paper, what does not "
    "does not refute it.",
    "medium": "CIFAR-10 at its own size on a CPU, every method tuned alike: far smaller than the "
    "paper's setting; what holds here supports the paper, what does not does not refute it.",
    "small": "Real images on a CPU, far smaller than the paper's setting: what holds here supports "
    "the paper, what does not hold here does not refute it.",
    "mini": "scikit-learn's digits, embedded, minutes on a CPU: what holds here supports the "
    "paper, what does not hold here does not refute it.",
}
FOOTER = (
    "Runs of one seed share images, wrong labels, initial weights and order. Differences are "
    "paired by seed, with the 95 % t-interval in brackets; p-values are corrected for their number "
    "within an experiment (Holm). A claim holds where every difference is significant and speaks "
    "for it, does not hold where a significant one speaks against it, and is undecided otherwise "
    "or with fewer than 3 seeds; the smallest difference that the seeds would have shown in four "
    "of five cases, by itself and before correction, stands beside. Dots are single runs. Settings "
    "that are searched for are chosen on validation images, with the same number of trials for "
    "every method; no choice looks at the test images."
)


def write_report(folder: Path) -> tuple[Path, str]:
    """Write page, Markdown, records and figures; return the page and a summary to print."""
    check_writable(folder)
    book = read_book(folder)
    write_atomically(folder / "index.html", render(book))
    figures = _write_figures(folder / "figures", book)
    write_atomically(folder / "results.md", markdown(book, figures))
    write_atomically(folder / "records.jsonl", _records(book))
    for found in book.chapters:
        if found.tuned:
            write_atomically(folder / f"{found.experiment.name}.json", as_json(found.tuned))
    write_journal(folder / JOURNAL, _studies(book))
    width = max((len(c.experiment.name) for c in book.chapters), default=0)
    lines = [
        f"{c.experiment.name:<{width}}  {verdict_text(j):<22}  {j.text}"
        for c in book.chapters
        for j in c.judgements
    ]
    return folder / "index.html", "\n".join(lines)


NOT_RECORDED = {"lr", "step", "seconds", "perturbation_norm", "perturbed_loss"}
"""Metrics of the last epoch that no number of the report is computed from."""


def read_book(folder: Path) -> Book:
    """Read the records of every experiment that was asked for."""
    notes = read_requests(folder)
    if notes["scale"] not in SCALES or not set(notes["rows"]) <= set(EXPERIMENTS):
        raise damaged(folder)
    scale: Scale = notes["scale"]
    chapters: list[Chapter] = []
    for name, asked in notes["rows"].items():
        found = experiment(name)
        command = str(asked.get("command", f"fsam reproduce {name} --scale {scale}"))
        if found.drawing == "theory":
            chapters.append(theory_chapter(found, scale, folder, command))
        else:
            runs = folder / "runs"
            results = collect(settled(found, scale, runs), scale, runs, asked.get("seeds"))
            if is_tuned(found, scale):
                searched = collect(search(found, scale, runs), scale, runs)
                chapters.append(tuned_chapter(results, searched, command))
            else:
                chapters.append(chapter(results, command))
    return Book(
        title=f"Friendly-SAM, experiment by experiment: scale {scale}",
        lead=LEADS[scale],
        setting=COMMON[scale],
        source=source(),
        chapters=chapters,
        footer=FOOTER,
    )


def _records(book: Book) -> str:
    """Return one line per run: what every number of the report can be computed from again."""
    lines = {
        run.folder.name: json.dumps(
            {
                "run": run.folder.name,
                "seed": run.config.seed,
                **{n: round(v, 4) for n, v in run.metrics[-1].items() if n not in NOT_RECORDED},
                "train_seconds": round(sum(run.series("seconds")), 2),
                "commit": str(run.environment.get("starts", [{}])[-1].get("commit"))[:12],
            },
            separators=(",", ":"),
        )
        for found in book.chapters
        for run in found.runs
    }
    return "".join(f"{line}\n" for _, line in sorted(lines.items()))


def _studies(book: Book) -> dict[str, list[Scored]]:
    """Return every search by experiment, task and contender, for Optuna's own tools."""
    return {
        f"{record.experiment}: {record.task}: {entry.name}": [
            (t.settings, t.validation) for t in entry.trials if t.validation is not None
        ]
        for found in book.chapters
        for record in found.tuned
        for entry in record.entries
    }


def _write_figures(folder: Path, book: Book) -> dict[str, list[str]]:
    """Write each experiment's figure as SVG, PNG and PDF; return the SVGs' paths from the page."""
    make_folder(folder)
    paths: dict[str, list[str]] = {}
    for found in book.chapters:
        name = found.experiment.name
        if found.panels:
            for kind in KINDS:
                write_atomically(folder / f"{name}.{kind}", draw_panels(found.panels, kind))
            paths[name] = [f"figures/{name}.svg"]
        if found.figures:
            paths[name] = [f"figures/{path.name}" for path, _ in found.figures]
    return paths
