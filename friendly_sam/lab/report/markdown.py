"""The same report as Markdown, for a repository's pages."""

from __future__ import annotations

from collections.abc import Sequence

from friendly_sam.lab.report.book import Book, difference_text, verdict_text
from friendly_sam.lab.report.chapter import Chapter
from friendly_sam.lab.report.page import Table


def markdown(book: Book, pictures: dict[str, list[str]]) -> str:
    """Give the report as Markdown.

    Args:
        book: the report.
        pictures: for each row, the paths of its pictures as seen from the page.
    """
    parts = [f"# {book.title}", book.lead, book.setting, f"Printed numbers: {book.source}"]
    parts.append("## What the paper says, and what was seen here")
    rows = [
        [f"[{c.experiment.name}](#{c.experiment.name.lower()})", j.text, verdict_text(j), j.tally]
        for c in book.chapters
        for j in c.judgements
    ]
    parts.append(table(Table(header=["row", "claim", "here", "intervals"], rows=rows)))
    parts += [
        _chapter(chapter, pictures.get(chapter.experiment.name, [])) for chapter in book.chapters
    ]
    parts.append(f"---\n\n{book.footer}")
    return "\n\n".join(parts) + "\n"


def _chapter(chapter: Chapter, pictures: Sequence[str]) -> str:
    row = chapter.experiment
    parts = [f"## {row.name}", f"**{row.title}.** The paper: {row.claim}"]
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
    parts += [f"![{row.title}]({picture})" for picture in pictures]
    if chapter.measured is not None:
        parts += ["Measured:", table(chapter.measured), chapter.caption]
    for title, more in chapter.more:
        parts += [f"{title}:", table(more)]
    if chapter.printed is not None:
        parts += [f"Printed in the paper ({chapter.printed_where}):", table(chapter.printed)]
    parts.append(f"Setting: {chapter.mapping}")
    facts = "; ".join(f"{name} {value}" for name, value in chapter.facts)
    parts.append(f"Command: `{chapter.command}`" + (f". {facts}." if facts else ""))
    if chapter.sweep is not None:
        parts.append(_details("The sweep, and what was chosen", table(chapter.sweep)))
    if chapter.records:
        rows = [[cell, names] for cell, names in chapter.records]
        records = table(Table(header=["cell", "run folders"], rows=rows))
        parts.append(_details("Run folders behind every number", records))
    return "\n\n".join(parts)


def _details(title: str, inner: str) -> str:
    return f"<details><summary>{title}</summary>\n\n{inner}\n\n</details>"


def table(table: Table) -> str:
    """Give a table as Markdown."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    columns = list(zip(*table.rows, strict=True)) or [()] * len(table.header)
    rule = "|" + "|".join("---:" if _numbers(column) else "---" for column in columns) + "|"
    return "\n".join([line(table.header), rule, *[line(row) for row in table.rows]])


def _numbers(cells: Sequence[str]) -> bool:
    """Whether a column is one of numbers, which are easier to compare flush right."""
    return all(cell.lstrip("+-")[:1].isdigit() for cell in cells if cell not in ("", "-"))
