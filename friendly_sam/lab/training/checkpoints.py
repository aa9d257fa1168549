"""Checkpoint files: written atomically, checked when read, with one kept in reserve.

A run's `checkpoints` folder holds `last.pt` (everything needed to go on), `previous.pt`
(the one before) and `best.pt` (the weights that did best). Each is an ordinary `torch.save`
file, so `torch.load(path, weights_only=True)` reads it too. That format is a zip archive
with a CRC-32 of every record, which `torch.load` does not look at; `verify` does.
"""

from __future__ import annotations

import pickle
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch

from friendly_sam.lab.errors import LabError, RunError
from friendly_sam.lab.files import atomic_file, sync_folder

State = dict[str, Any]
"""Tensors, numbers, strings, and lists and dictionaries of those."""


class DamagedCheckpointError(Exception):
    """The bytes of a checkpoint are not those that were written."""


def verify(path: Path) -> None:
    """Compare every record of a checkpoint with its stored checksum."""
    try:
        with zipfile.ZipFile(path) as archive:
            damaged = archive.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
        raise DamagedCheckpointError(f"{path}: {error}") from error
    if damaged is not None:
        raise DamagedCheckpointError(f"{path}: checksum of {damaged} does not match")


def read(path: Path) -> State:
    """Read a checkpoint to the CPU, after checking it."""
    verify(path)
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, KeyError, ValueError) as error:
        raise DamagedCheckpointError(f"{path}: {error}") from error
    if not isinstance(state, dict):
        raise DamagedCheckpointError(f"{path}: holds a {type(state).__name__}")
    return state


def write(path: Path, state: State) -> None:
    """Write a checkpoint atomically."""
    try:
        with atomic_file(path) as file:
            torch.save(state, file)
    except (OSError, RuntimeError) as error:
        # torch reports a full disk as a RuntimeError, with the system's error as context.
        cause = error if isinstance(error, OSError) else error.__context__
        reason = (cause.strerror if isinstance(cause, OSError) else None) or error
        raise RunError(f"cannot write checkpoint {path}: {reason}") from error


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.last = folder / "last.pt"
        self.previous = folder / "previous.pt"
        self.best = folder / "best.pt"

    def save(self, state: State) -> None:
        """Write `last.pt`; what was there becomes `previous.pt`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self.folder / "next.pt"
        write(draft, state)
        if self.last.exists():
            self.last.replace(self.previous)
        draft.replace(self.last)
        sync_folder(self.folder)

    def save_best(self, state: State) -> None:
        """Write `best.pt`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write(self.best, state)

    def load(self) -> State | None:
        """Read the newest undamaged checkpoint; `None` where none was ever written.

        `next.pt` exists only when the process died between the renames of `save`: it is
        whole then, and the newest.
        """
        candidates = [self.folder / "next.pt", self.last, self.previous]
        damaged = []
        for path in candidates:
            if not path.exists():
                continue
            try:
                return read(path)
            except DamagedCheckpointError as error:
                damaged.append(path)
                warnings.warn(
                    f"checkpoint is damaged, going back to the one before ({error})", stacklevel=2
                )
        if damaged:
            names = ", ".join(str(path) for path in damaged)
            raise LabError(f"no checkpoint to resume from: {names} damaged")
        return None


def load_weights(source: str) -> State:
    """Read the network's weights from a checkpoint file or a run's folder (best, else last)."""
    path = Path(source)
    if path.is_dir():
        folder = Checkpoints(path / "checkpoints")
        path = folder.best if folder.best.exists() else folder.last
    if not path.is_file():
        raise LabError(f"no checkpoint at {source}")
    try:
        state = read(path)
    except DamagedCheckpointError as error:
        raise LabError(f"checkpoint is damaged ({error})") from error
    weights = state.get("model", state)
    if not isinstance(weights, dict):
        raise LabError(f"{path} holds no weights")
    return weights
