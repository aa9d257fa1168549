"""Every Python block of the documentation runs; the blocks of a page are one script."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page):
    """The Python blocks of a page, each with the number of the line before it."""
    text = page.read_text()
    return [(text.count("\n", 0, found.start()) + 1, found[1]) for found in FENCE.finditer(text)]


PAGES = [
    page
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md")))
    if page.exists() and blocks(page)
]


def test_there_is_code_to_run():
    names = {page.relative_to(ROOT).as_posix() for page in PAGES}
    assert {"README.md", "CONTRIBUTING.md", "docs/tutorials/first-loop.md"} <= names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_code_of_the_page_runs(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # what a page writes stays out of the repository
    scope = {"__name__": "__main__"}
    for line, code in blocks(page):
        # As many empty lines before the code as there are in the page: errors show its line.
        exec(compile("\n" * line + code, str(page), "exec"), scope)
