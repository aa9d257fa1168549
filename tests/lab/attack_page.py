"""The page of the documentation that shows the tables of `make attack`."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

RAM = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""Where attacked files are: a kill is no power cut, so nothing needs a disk."""


def publish(page: Path, section: str, content: str) -> None:
    """Put what an attack printed between the marks of its section, with the date and the commit."""
    commit = subprocess.run(
        ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    begin, end = f"<!-- {section} -->", f"<!-- end of {section} -->"
    text = page.read_text()
    assert text.count(begin) == text.count(end) == 1, f"{page} has no place for {section}"
    told = f"On {time.strftime('%d %B %Y').lstrip('0')}, at commit {commit}:\n\n{content}"
    found = re.escape(begin) + ".*?" + re.escape(end)
    page.write_text(re.sub(found, lambda _: f"{begin}\n{told}\n{end}", text, flags=re.DOTALL))
