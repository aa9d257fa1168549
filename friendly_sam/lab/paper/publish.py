"""Bring what `fsam reproduce` wrote into the documentation: page, figures, records.

    python -m friendly_sam.lab.paper.publish runs/reproduce/mini docs

replaces `docs/results/mini`, and makes the tables of `docs/which-method.md` and README's picture
again.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from friendly_sam.lab.files import delete
from friendly_sam.lab.paper import headline
from friendly_sam.lab.paper.reproduction_folder import read_requests
from friendly_sam.lab.paper.which_method import refresh


def publish(folder: Path, docs: Path) -> Path:
    """Replace the results of a scale; return their folder."""
    scale = str(read_requests(folder)["scale"])
    target = docs / "results" / scale
    delete(target)
    (target / "figures").mkdir(parents=True)
    shutil.copyfile(folder / "results.md", target / "README.md")
    shutil.copyfile(folder / "records.jsonl", target / "records.jsonl")
    page = (folder / "results.md").read_text(encoding="utf-8")
    for path in sorted((folder / "figures").glob("*.svg")):
        if f"figures/{path.name}" in page:
            shutil.copyfile(path, target / "figures" / path.name)
    for path in sorted(folder.glob("*.json")):
        if f"\n## {path.stem}\n" in page:
            shutil.copyfile(path, target / path.name)
    refresh(docs)
    headline.refresh(docs)
    return target


if __name__ == "__main__":
    print(publish(Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else "docs")))
