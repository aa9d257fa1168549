"""Tables for a terminal: columns line up, whatever the width of the text."""

from __future__ import annotations

from friendly_sam.lab.report.page import Table


def plain_table(table: Table) -> str:
    """Give a table as text: first column to the left, the others to the right."""
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
