"""A table, and how it is written: for a terminal, as HTML, as Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH = 100
"""Columns of a terminal that a table keeps within."""
SENTENCE = 24
"""Letters from which a cell of words is wrapped on a page."""
NARROWEST = 18
"""Letters that the first column keeps before the others are put below one another."""
GAP = "  "


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows of text under headings."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def plain_table(table: Table, width: int = WIDTH) -> str:
    """Return a table as text: first column to the left, the others to the right.

    Where it is wider than the terminal, the first column is wrapped; where that does not do, the
    table is cut into several, each with the first column.
    """
    lines = [list(table.header), *[list(row) for row in table.rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(table.header))]
    rest = sum(widths[1:]) + len(GAP) * (len(widths) - 1)
    first = min(widths[0], max(width - rest, NARROWEST))
    blocks: list[list[int]] = [[]]
    used = first
    for column in range(1, len(widths)):
        if blocks[-1] and used + len(GAP) + widths[column] > width:
            blocks.append([])
            used = first
        blocks[-1].append(column)
        used += len(GAP) + widths[column]
    return "\n\n".join(_block(lines, columns, widths, first) for columns in blocks)


def _block(
    lines: Sequence[Sequence[str]], columns: Sequence[int], widths: Sequence[int], first: int
) -> str:
    """Return some columns of a table behind its first one."""
    shown = []
    for line in lines:
        head = textwrap.wrap(line[0], first) or [""]
        cells = [head[0].ljust(first), *[line[column].rjust(widths[column]) for column in columns]]
        shown += [GAP.join(cells).rstrip(), *[f"  {more}" for more in head[1:]]]
        if line is lines[0]:
            shown.append(GAP.join("-" * size for size in (first, *[widths[c] for c in columns])))
    return "\n".join(shown)


def html_table(table: Table) -> str:
    """Return a table; a narrow screen shows each row as a card, with the headings in it."""
    kinds = [_kind(column) for column in zip(*table.rows, strict=True)] or [""] * len(table.header)
    head = "".join(
        f'<th scope="col"{kind}>{escape(cell)}</th>'
        for cell, kind in zip(table.header, kinds, strict=True)
    )
    rows = "".join(
        "<tr>" + "".join(map(_cell, table.header, row, kinds)) + "</tr>" for row in table.rows
    )
    return (
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _kind(cells: Sequence[str]) -> str:
    """Return the class of a column of sentences, which are wrapped; numbers stay on one line."""
    return ' class="text"' if not _numbers(cells) and max(map(len, cells)) > SENTENCE else ""


def _cell(heading: str, cell: str, kind: str) -> str:
    return f'<td data-label="{escape(heading, quote=True)}"{kind}>{escape(cell)}</td>'


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
