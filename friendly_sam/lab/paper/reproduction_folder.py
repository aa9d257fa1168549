"""The folder that `fsam reproduce` fills, and the file by which it is known.

That file, `reproduce.json`, holds the scale, and of each experiment that was asked for the
command and the number of seeds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from friendly_sam.lab.config.bounds import MOST_SEEDS
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.files import check_writable, make_folder, write_atomically
from friendly_sam.lab.reading import checked, read_json_object

MARK = "reproduce.json"
ASKED: dict[str, Any] = {"command": str, "seeds": (int, type(None))}
"""What is noted of each experiment; older files lack some of it."""


def is_reproduction(folder: Path) -> bool:
    """Whether a folder was filled by `fsam reproduce`."""
    return (folder / MARK).is_file()


def claim_folder(folder: Path) -> None:
    """Take a folder that is new, empty or ours; refuse one with files of somebody else."""
    check_writable(folder)
    if folder.is_dir() and any(folder.iterdir()) and not is_reproduction(folder):
        raise LabError(
            f"{folder} holds files that `fsam reproduce` did not write; choose another --output"
        )
    make_folder(folder / "runs")
    if not is_reproduction(folder):
        write_requests(folder, {"scale": folder.name, "rows": {}})


def read_requests(folder: Path) -> dict[str, Any]:
    """Read what was asked for: `scale`, and `rows` by the name of the experiment."""
    path = folder / MARK
    try:
        requests = checked(read_json_object(path), {"scale": str, "rows": dict}, str(path))
        for row in requests["rows"].values():
            _check_row(row, str(path))
    except LabError as error:
        raise damaged(folder) from error
    return {"scale": requests["scale"], "rows": requests["rows"]}


def _check_row(row: Any, source: str) -> None:
    checked(row, dict, source)
    checked(row, {name: kind for name, kind in ASKED.items() if name in row}, source)
    if not 1 <= (row.get("seeds") or 1) <= MOST_SEEDS:
        raise LabError(f"{source} is damaged: seeds is {row['seeds']}")


def write_requests(folder: Path, requests: dict[str, Any]) -> None:
    """Write what was asked for."""
    write_atomically(folder / MARK, json.dumps(requests, indent=2) + "\n")


def damaged(folder: Path) -> LabError:
    """Return the error of a file that says what cannot be."""
    return LabError(f"{folder / MARK} is damaged; delete it and start again (runs are kept)")
