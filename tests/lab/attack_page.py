"""The page of the documentation that shows the tables of `make attack`."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

RAM = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where attacked files are: a kill is no power cut, so nothing needs a disk."""


def publish(page: Path, section: str, header: str, rows: list[str]) -> None:
    """Put rows into a table of the page, in the place of older ones of the same name.

    Each row gets the date and the commit; the last line is the sum of all.
    """
    begin, end = f"<!-- {section} -->\n", f"<!-- end of {section} -->"
    before, _, rest = page.read_text().partition(begin)
    table, mark, after = rest.partition(end)
    assert mark, f"{page} has no place for {section}"
    known = {row.split(" | ")[0]: row for row in table.splitlines()[2:-1]}
    stamp = f"{time.strftime('%Y-%m-%d')} | {_commit()} |"
    known |= {row.split(" | ")[0]: f"{row} {stamp}" for row in rows}
    head = f"{header} date | commit |"
    lines = [head, "|---" * (head.count("|") - 1) + "|", *known.values(), _sum(known)]
    page.write_text("\n".join([before + begin + lines[0], *lines[1:], end]) + after)


def _sum(rows: dict[str, str]) -> str:
    """Add up the columns that hold numbers; `moments` and the like may be left blank."""
    cells = [[cell.strip() for cell in row.split("|")[2:-3]] for row in rows.values()]
    sums = [sum(int(re.sub(r"\D", "", cell) or 0) for cell in column) for column in zip(*cells)]
    return f"| all | {' | '.join(f'{number:,}' for number in sums)} | | |"


def _commit() -> str:
    """Return the commit, `+` for changes of the code on top."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(Path(__file__).parents[2]), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    changed = git("status", "--porcelain", "-uno", "--", "friendly_sam", "tests")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
