"""Which runs are meant by the folders that somebody names."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from friendly_sam.lab.counting import counted
from friendly_sam.lab.records.run import Run, is_run, read_run

DEEPEST = 32
"""Folders inside of one another that are looked into."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """The runs, and what was left out."""

    runs: list[Run]
    skipped: tuple[str, ...] = ()
    """Folders beside runs, with how many runs each holds."""


def find_runs(folders: Sequence[Path]) -> Found:
    """Read the runs that folders stand for.

    A run stands for itself, another folder for the runs right inside it. Folders of whole
    experiments (`fsam demo`, `tune`, `reproduce`) beside runs are left out, so `runs` and
    `runs/*` mean single runs; they are read where nothing but experiments is named.
    """
    chosen: dict[Path, Path] = {}
    skipped: Counter[Path] = Counter()
    single = any(is_run(folder) for folder in folders)
    for folder in folders:
        inside = _inside(folder)
        right_here = [path for path in inside if path.parent == folder]
        if is_run(folder) or not (inside or (single and folder.exists())):
            taken = [folder]  # reading what is no run gives the error to show
        else:
            taken = [] if single else right_here or inside
        for path in taken:
            chosen.setdefault(path.resolve(), path)
        if not taken:
            skipped[folder] += len(inside)
        elif taken == right_here:
            nested = [path.relative_to(folder).parts[0] for path in inside if path not in taken]
            skipped.update(folder / top for top in nested)
    return Found(
        runs=[read_run(path) for path in chosen.values()],
        skipped=tuple(f"{path} ({counted(n, 'run')})" for path, n in skipped.items()),
    )


def _inside(folder: Path) -> list[Path]:
    """Find runs level by level, as far down as anybody puts them; links are not followed."""
    found: list[Path] = []
    level = [str(folder)]
    for _ in range(DEEPEST):
        found += [Path(path) for path in level if is_run(Path(path))]
        level = [inner for path in level for inner in _folders(path)]
    return sorted(found)


def _folders(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:  # of others, or gone
        return []
