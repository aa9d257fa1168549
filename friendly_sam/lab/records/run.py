"""A run's folder, read: its config, state, metrics and environment."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from friendly_sam.lab.config.bounds import shown
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.config.yaml import from_yaml
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.reading import checked, read_bytes, read_json_lines, read_json_object

State = Literal["running", "finished", "failed"]
ENVIRONMENT: dict[str, Any] = {"starts": [dict]}
"""What `environment.json` must hold."""
START: dict[str, Any] = {"packages": dict, "gpus": [str], "arguments": [str]}
"""What is looked into of each start, where it is there."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What a run's folder says."""

    folder: Path
    config: RunConfig
    state: State
    message: str
    metrics: tuple[dict[str, float], ...]
    environment: dict[str, Any]

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self.state == "finished"

    def series(self, name: str) -> list[float]:
        """Return one metric over the epochs that have it."""
        return [line[name] for line in self.metrics if name in line]

    def epochs(self, name: str) -> list[int]:
        """Return the epochs, from 1, that have a metric."""
        return [number for number, line in enumerate(self.metrics, start=1) if name in line]

    def final(self, name: str) -> float:
        """Return a metric of the last epoch."""
        values = self.series(name)
        if not values:
            raise LabError(f"{self.folder} has no {name} yet")
        return values[-1]


def is_run(folder: Path) -> bool:
    """Whether a folder holds the records of a run."""
    return (folder / "config.yaml").is_file() and (folder / "status.json").is_file()


def run_state(folder: Path) -> State | None:
    """Return a run's state; `None` where there is no run."""
    if not is_run(folder):
        return None
    state = read_json_object(folder / "status.json").get("state")
    if state not in ("running", "finished", "failed"):
        raise LabError(f"{folder / 'status.json'} holds no known state: {shown(state)}")
    return cast(State, state)


def read_run(folder: Path, config: RunConfig | None = None) -> Run:
    """Read a run's folder; a last line that is still being written is left out.

    Args:
        folder: the run's folder.
        config: its config, where that is known already: parsing is most of the reading.
    """
    state = run_state(folder)
    if state is None:
        what = "is not the folder of a run (no config.yaml, status.json)"
        raise LabError(f"{folder} {what if folder.is_dir() else 'does not exist'}")
    status, path = read_json_object(folder / "status.json"), folder / "environment.json"
    if state == "finished":
        _check_digests(folder, status)
    return Run(
        folder=folder,
        config=from_yaml(folder / "config.yaml") if config is None else config,
        state=state,
        message=str(status.get("message", "")),
        metrics=tuple(_metrics(folder / "metrics.jsonl")),
        environment=_environment(path),
    )


def _environment(path: Path) -> dict[str, Any]:
    if not os.path.lexists(path):
        return {}
    found = read_json_object(path)
    if found:
        checked(found, ENVIRONMENT, str(path))
    if found and not found["starts"]:
        raise LabError(f"{path} is damaged: starts is empty")
    for start in found.get("starts", []):
        shape = {name: kind for name, kind in START.items() if name in start}
        checked(start, shape, str(path))
    return found


def _metrics(path: Path) -> list[dict[str, float]]:
    """Read the numbers of each epoch; a value that is no number is refused by its name."""
    if not os.path.lexists(path):
        return []
    lines = read_json_lines(path)
    for number, line in enumerate(lines, start=1):
        checked(line, dict.fromkeys(line, float), f"{path}, line {number}")
    return lines


def _check_digests(folder: Path, status: Mapping[str, Any]) -> None:
    """Refuse the files of a finished run that are not those that it wrote."""
    digests = status.get("sha256", {})  # runs of older versions have none
    if not isinstance(digests, dict) or set(digests) - {"metrics.jsonl", "config.yaml"}:
        raise LabError(f"{folder / 'status.json'} is damaged")
    for name, digest in digests.items():
        path = folder / name
        content = read_bytes(path) if os.path.lexists(path) else b""
        if hashlib.sha256(content).hexdigest() != digest:
            raise LabError(f"{path} is damaged: it is not what the finished run wrote")
