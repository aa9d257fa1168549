"""Bring what `fsam reproduce` wrote into the documentation: page, figures, records.

    python -m friendly_sam.lab.paper.publish runs/reproduce/mini docs

puts the experiments of that folder into `docs/results/mini`, in the place of what was there of
them; those that the folder does not have stay as they were, unless the scale no longer has them.
Then it makes the tables of `docs/which-method.md` and README's picture again.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from friendly_sam.lab.files import write_atomically
from friendly_sam.lab.paper import headline
from friendly_sam.lab.paper.experiments import EXPERIMENTS
from friendly_sam.lab.paper.reproduction_folder import read_requests
from friendly_sam.lab.paper.which_method import refresh

_CHAPTER = re.compile(r"^## (?=\S+$)", re.MULTILINE)
_VERDICT = re.compile(r"^\| \[(\S+)\]\(#.*\n", re.MULTILINE)
_FIGURE = re.compile(r"\]\((figures/[^)]+)\)")
_FOOT = "\n---\n"


def publish(folder: Path, docs: Path) -> Path:
    """Replace the experiments of a folder in the results of its scale; return where they are."""
    scale = str(read_requests(folder)["scale"])
    target = docs / "results" / scale
    (target / "figures").mkdir(parents=True, exist_ok=True)
    new, old = _text(folder / "results.md"), _text(target / "README.md")
    page = merged(old, new, scale)
    for path in _FIGURE.findall(new):
        shutil.copyfile(folder / path, target / path)
    for name in chapters(new):
        if (folder / f"{name}.json").is_file():
            shutil.copyfile(folder / f"{name}.json", target / f"{name}.json")
    texts = chapters(page)
    kept = "".join(text for name, text in texts.items() if name not in chapters(new))
    records = merged_records(
        _text(target / "records.jsonl"), _text(folder / "records.jsonl"), page, kept
    )
    write_atomically(target / "records.jsonl", records)
    write_atomically(target / "README.md", page)
    for path in (target / "figures").iterdir():
        if f"figures/{path.name}" not in page:
            path.unlink()
    for path in target.glob("*.json"):
        if path.stem not in texts:
            path.unlink()
    refresh(docs)
    headline.refresh(docs)
    return target


def chapters(page: str) -> dict[str, str]:
    """Return the text of each experiment on a page."""
    parts = _CHAPTER.split(page.rpartition(_FOOT)[0])[1:]
    return {part.split("\n", 1)[0]: part.rstrip() for part in parts}


def merged(old: str, new: str, scale: str) -> str:
    """Return the new page with the experiments of the scale that only the old one has."""
    texts = {**chapters(old), **chapters(new)}
    order = [
        name for name, found in EXPERIMENTS.items() if name in texts and scale in found.mapping
    ]
    own = set(chapters(new))
    verdicts: dict[str, list[str]] = {name: [] for name in order}
    for page, wanted in ((old, set(order) - own), (new, own)):
        for row in _VERDICT.finditer(page):
            if row[1] in wanted:
                verdicts[row[1]].append(row[0])
    head = _VERDICT.sub("", _CHAPTER.split(new)[0]).rstrip()
    rows = "".join(row for name in order for row in verdicts[name])
    foot = new.rpartition(_FOOT)[2]
    body = "".join(f"\n## {texts[name]}\n" for name in order)
    return f"{head}\n{rows}{body}{_FOOT}{foot}"


def merged_records(old: str, new: str, page: str, kept: str) -> str:
    """Return the records of the runs that a page names.

    Where a run was made again and came out otherwise (by another commit, on another machine), the
    old line stays beside the new one as long as an experiment that was kept shows it.
    """
    fresh = {str(_read(line)["run"]): line for line in new.splitlines()}
    shown = [line for run, line in fresh.items() if run in page]
    for line in old.splitlines():
        run = str(_read(line)["run"])
        again = fresh.get(run)
        if run in page and (again is None or (run in kept and _differ(line, again))):
            shown.append(line)
    return "".join(f"{line}\n" for line in sorted(shown))


def _differ(*lines: str) -> bool:
    """Whether two lines say something else than when and by which commit a run was made."""
    first, second = (
        {k: v for k, v in _read(line).items() if k not in ("train_seconds", "commit")}
        for line in lines
    )
    return first != second


def _read(line: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(line)
    return found


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


if __name__ == "__main__":
    print(publish(Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else "docs")))
