"""Publishing an experiment leaves the others of the page as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from friendly_sam.lab.paper.publish import chapters, merged

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.mark.parametrize("page", sorted(RESULTS.glob("*/README.md")), ids=lambda p: p.parent.name)
def test_a_page_merged_with_itself_or_with_nothing_is_that_page(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert merged(text, text, page.parent.name) == text
    assert merged("", text, page.parent.name) == text


def _page(**words: str) -> str:
    rows = "".join(f"| [{name}](#{name}) | {word} |\n" for name, word in words.items())
    body = "".join(f"\n## {name}\n\n{word} text\n" for name, word in words.items())
    table = f"## What was seen\n\n| experiment | here |\n|---|---|\n{rows}"
    return f"# Title\n\n{table}{body}\n---\n\nfoot\n"


def test_new_experiments_replace_their_own_and_come_in_the_order_of_the_paper() -> None:
    old, new = _page(table1="old", table5="old"), _page(table2="new", table5="new")
    page = merged(old, new, "mini")
    assert page == _page(table1="old", table2="new", table5="new")
    assert list(chapters(page)) == ["table1", "table2", "table5"]


def test_an_experiment_that_a_scale_no_longer_has_leaves_its_page() -> None:
    page = merged(_page(table2="old", table6="old"), _page(table1="new"), "medium")
    assert page == _page(table1="new", table6="old")
