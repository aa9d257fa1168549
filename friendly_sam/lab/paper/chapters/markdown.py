"""The same report as Markdown, for a repository's pages."""

from __future__ import annotations

from collections.abc import Sequence

from friendly_sam.lab.paper.chapters.chapter import Chapter
from friendly_sam.lab.paper.chapters.html import Book, difference_text, verdict_text
from friendly_sam.lab.report.tables import Table, markdown_table


def markdown(book: Book, figures: dict[str, list[str]]) -> str:
    """Return the report as Markdown.

    Args:
        book: the report.
        figures: for each experiment, the paths of its figures as seen from the page.
    """
    parts = [f"# {book.title}", book.lead, book.setting, f"Printed numbers: {book.source}"]
    parts.append("## What the paper says, and what was seen here")
    rows = [
        [f"[{c.experiment.name}](#{c.experiment.name.lower()})", j.text, verdict_text(j), j.tally]
        for c in book.chapters
        for j in c.judgements
    ]
    parts.append(
        markdown_table(Table(header=["experiment", "claim", "here", "intervals"], rows=rows))
    )
    parts += [
        _chapter(chapter, figures.get(chapter.experiment.name, [])) for chapter in book.chapters
    ]
    parts.append(f"---\n\n{book.footer}")
    return "\n\n".join(parts) + "\n"


def _chapter(chapter: Chapter, figures: Sequence[str]) -> str:
    experiment = chapter.experiment
    parts = [f"## {experiment.name}", f"**{experiment.title}.** The paper: {experiment.claim}"]
    parts += [f"> {note}" for note in chapter.notes]
    if chapter.judgements:
        lines = []
        for judgement in chapter.judgements:
            lines.append(f"- **{verdict_text(judgement)}**: {judgement.text}")
            lines += [
                f"  - {': '.join(filter(None, (c.label, difference_text(c))))}"
                for c in judgement.comparisons
                if c.n or not c.difference
            ]
        parts.append("\n".join(lines))
    parts += [f"![{experiment.title}]({figure})" for figure in figures]
    if chapter.measured is not None:
        parts += ["Measured:", markdown_table(chapter.measured), chapter.caption]
    for title, more in chapter.more:
        parts += [f"{title}:", markdown_table(more)]
    if chapter.printed is not None:
        parts += [
            f"Printed in the paper ({chapter.printed_where}):",
            markdown_table(chapter.printed),
        ]
    parts.append(f"Setting: {chapter.mapping}")
    facts = "; ".join(f"{name} {value}" for name, value in chapter.facts)
    parts.append(f"Command: `{chapter.command}`" + (f". {facts}." if facts else ""))
    if chapter.sweep is not None:
        parts.append(_details("The sweep, and what was chosen", markdown_table(chapter.sweep)))
    if chapter.records:
        rows = [[cell, names] for cell, names in chapter.records]
        records = markdown_table(Table(header=["cell", "run folders"], rows=rows))
        parts.append(_details("Run folders behind every number", records))
    return "\n\n".join(parts)


def _details(title: str, inner: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{inner}\n\n</details>"
