"""Publishing an experiment leaves the others of the page as they were."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from friendly_sam.lab.paper.publish import chapters, merged, merged_records

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


def _line(run: str, accuracy: float, commit: str) -> str:
    return json.dumps({"run": run, "test_accuracy": accuracy, "commit": commit}) + "\n"


def test_a_run_that_came_out_otherwise_keeps_both_lines_while_both_are_shown() -> None:
    old, new = _line("run-a", 90.0, "first"), _line("run-a", 89.0, "second")
    assert merged_records(old, new, page="run-a run-a", kept="run-a") == new + old
    assert merged_records(old, new, page="run-a", kept="") == new
    same = _line("run-a", 90.0, "second")
    assert merged_records(old, same, page="run-a", kept="run-a") == same
    assert merged_records(old, "", page="run-a", kept="run-a") == old
    assert merged_records(old, new, page="", kept="") == ""


@pytest.mark.parametrize("folder", sorted(RESULTS.glob("*/")), ids=lambda p: p.name)
def test_every_tabled_accuracy_is_in_the_records(folder: Path) -> None:
    """By seed: the runs that a page names below a number are those that the number is made of."""
    lines = (folder / "records.jsonl").read_text().splitlines()
    known: dict[str, set[float]] = {}
    for line in map(json.loads, lines):
        known.setdefault(line["run"], set()).add(line["test_accuracy"])
    for name, text in chapters((folder / "README.md").read_text()).items():
        named = [row for row in text.splitlines() if "-seed0-" in row and row.startswith("| ")]
        cells = {row.split(" | ")[0].removeprefix("| "): row.split(" | ")[1] for row in named}
        for path in folder.glob(f"{name}.json"):
            for task in json.loads(path.read_text()):
                for entry in task["entries"]:
                    runs = cells.get(f"{task['task']}: {entry['name']}", "").strip(" |").split(", ")
                    for run, accuracy in zip(runs, entry["last"].values(), strict=False):
                        assert not run or accuracy in known[run], (name, run)
