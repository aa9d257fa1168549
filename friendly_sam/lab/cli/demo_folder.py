"""The folder that `fsam demo` fills, and the file by which it knows its own runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from friendly_sam.lab.config.identity import difference
from friendly_sam.lab.config.resolve import resolve
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.config.yaml import from_yaml
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.files import check_writable, make_folder, refuse_link, write_atomically
from friendly_sam.lab.records.claim import claimed, clear, holds_run
from friendly_sam.lab.records.measured_once import kept
from friendly_sam.lab.records.run import is_run

MARK = "demo.json"


def claim(output: Path, runs: Sequence[RunConfig], fresh: bool) -> int:
    """Note which runs are the demo's, so that it deletes no others; return how many are there."""
    refuse_link(output / "runs")  # before anything is deleted there
    check_writable(output / "runs")
    made = kept(output / MARK, {}) or {"runs": []}
    ours = {str(name) for name in made["runs"]} if isinstance(made.get("runs"), list) else set()
    folders = [Path(str(run.output)) for run in runs]
    for folder in folders:
        if holds_run(folder) and folder.name not in ours:
            raise LabError(f"{folder} is no run of this demo: choose another --output")
    for folder in (output / "runs").iterdir() if fresh and (output / "runs").is_dir() else ():
        if folder.name in ours and holds_run(folder):
            with claimed(folder, replace=True):
                clear(folder)
    there = [run for run, folder in zip(runs, folders, strict=True) if is_run(folder)]
    for run in there:
        if difference(from_yaml(Path(str(run.output)) / "config.yaml"), resolve(run)) is not None:
            raise LabError(f"{output} holds a demo of other settings: --fresh forgets it")
    make_folder(output / "runs")
    names = sorted(ours | {folder.name for folder in folders})
    write_atomically(output / MARK, json.dumps({"runs": names}, indent=2) + "\n")
    return len(there)
