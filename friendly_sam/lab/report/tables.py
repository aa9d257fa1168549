"""A table, and how it is written: for a terminal, as HTML, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of text under headings."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def plain_table(table: Table) -> str:
    """Return a table as text: first column to the left, the others to the right."""
    lines = [list(table.header), *[list(row) for row in table.rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(table.header))]

    def row(cells: list[str]) -> str:
        padded = [
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([row(lines[0]), rule, *[row(line) for line in lines[1:]]])


def html_table(table: Table) -> str:
    """Return a table that scrolls sideways where the screen is narrow."""
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in table.header)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def markdown_table(table: Table) -> str:
    """Return a table as Markdown."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    columns = list(zip(*table.rows, strict=True)) or [()] * len(table.header)
    rule = "|" + "|".join("---:" if _numbers(column) else "---" for column in columns) + "|"
    return "\n".join([line(table.header), rule, *[line(row) for row in table.rows]])


def _numbers(cells: Sequence[str]) -> bool:
    """Whether a column is one of numbers, which are easier to compare flush right."""
    return all(cell.lstrip("+-")[:1].isdigit() for cell in cells if cell not in ("", "-"))
