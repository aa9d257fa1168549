"""Checkpoint files, named by their step and by what they hold.

A run's `checkpoints` folder holds files such as `step-00000120-1f0c9a7be2d34856.pt`: everything
needed to go on, as an ordinary `torch.save` file. The end of the name is the beginning of the
SHA-256 of the whole file, which is compared before anything in it is read. The newest file that
agrees with its name is resumed from.

`index.json` names the `last` and the `best`. It is replaced once a new file is complete, and only
then are older ones deleted (the one before `last` stays), so what it names is always there. A file
that is complete when the process dies before that is found by its step, and it knows which step was
the best.
"""

from __future__ import annotations

import hashlib
import json
import re
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch

from friendly_sam.lab import memory
from friendly_sam.lab.errors import LabError, RunError
from friendly_sam.lab.files import (
    delete,
    draft,
    make_folder,
    publish,
    refuse_link,
    write_atomically,
)
from friendly_sam.lab.reading import checked, open_regular, read_json_object, regular_size
from friendly_sam.lab.training.archive import check_archive

State = dict[str, Any]
"""Tensors, numbers, strings, and lists and dictionaries of those."""
INDEX = "index.json"
_INDEX = {"last": (str, type(None)), "best": (str, type(None))}
_NAME = re.compile(r"step-(\d{8,})-([0-9a-f]{16})\.pt")


class DamagedCheckpointError(Exception):
    """The bytes of a checkpoint are not those that were written."""


def read(path: Path) -> State:
    """Read a checkpoint to the CPU, after comparing it with the checksum in its name."""
    try:
        with _opened(path) as file:
            _compare(file, path.name)
            check_archive(file)
            state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds, those of pickle and zip among them
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DamagedCheckpointError(f"{path}: {reason}") from error
    if not isinstance(state, dict):
        raise DamagedCheckpointError(f"{path}: holds a {type(state).__name__}")
    return state


def fingerprint(path: Path) -> str:
    """Return the SHA-256 of a checkpoint."""
    with _opened(path) as file:
        return _digest(file)


def _opened(path: Path) -> BinaryIO:
    """Open a checkpoint; one that no memory of this machine could hold is not read at all."""
    size, most = regular_size(path), memory.total()
    if most is not None and size > most:
        raise LabError(
            f"{path} has {memory.size(size)}, this machine {memory.size(most)} of memory"
        )
    return open_regular(path)


def _compare(file: BinaryIO, name: str) -> None:
    """Refuse a file that does not agree with its name; weights from elsewhere have no checksum."""
    ours = _NAME.fullmatch(name)
    if ours and ours[2] != _digest(file)[:16]:
        raise DamagedCheckpointError("the checksum does not match")
    file.seek(0)


def _digest(file: BinaryIO) -> str:
    file.seek(0)
    return hashlib.file_digest(cast(BufferedReader, file), "sha256").hexdigest()


def write(folder: Path, state: State, step: int) -> Path:
    """Write a checkpoint as a whole; return its path."""
    name = f"step-{step:08}"
    try:
        with draft(folder) as file:
            torch.save(state, file)
            path = folder / f"{name}-{_digest(file)[:16]}.pt"
            publish(file, path)
    except (OSError, RuntimeError) as error:
        # torch reports a full disk as a RuntimeError, with the system's error as context.
        cause = error if isinstance(error, OSError) else error.__context__
        reason = (cause.strerror if isinstance(cause, OSError) else None) or error
        raise RunError(f"cannot write checkpoint {folder / name}: {reason}") from error
    return path


class Checkpoints:
    """The checkpoints of one run."""

    def __init__(self, folder: Path) -> None:
        refuse_link(folder)
        self.folder = folder
        self._last: Path | None = None
        self._best: Path | None = None

    def save(self, state: State, step: int, *, best: bool = False) -> None:
        """Write a checkpoint; `best` says that none before it was better."""
        make_folder(self.folder)
        best_step = step if best else self._best and _step(self._best)
        self._last = write(self.folder, state | {"best_step": best_step}, step)
        self._best = self._last if best else self._best
        self.settle()

    def settle(self) -> None:
        """Let the index name the last and the best; delete all but these and the one before."""
        if self._last is None:
            return
        names = {"last": self._last.name, "best": self._best.name if self._best else None}
        write_atomically(self.folder / INDEX, json.dumps(names, indent=2) + "\n")
        before = [path for path in self._files() if _step(path) < _step(self._last)][:1]
        for path in self._files():
            if path not in (self._last, self._best, *before):
                delete(path)

    def load(self) -> State | None:
        """Read the newest undamaged checkpoint; `None` where none was ever written."""
        damaged: list[str] = []
        for path in self._files():
            try:
                state = read(path)
            except DamagedCheckpointError:
                damaged.append(str(path))
                continue
            best_step = state.pop("best_step", None)
            self._last, self._best = path, self._of_step(best_step)
            if best_step is not None and self._best is None and not damaged:
                damaged.append(f"the best checkpoint (step {best_step})")
            if damaged:
                print(f"damaged: {', '.join(damaged)}; going on from {path}")
            return state
        if damaged:
            raise LabError(f"no checkpoint to resume from: {', '.join(damaged)} damaged")
        if (self.folder / "last.pt").exists():
            raise LabError(
                f"{self.folder / 'last.pt'} is of friendly-sam 0.1, which this version cannot go "
                "on with: --overwrite starts again"
            )
        return None

    def path(self, which: str) -> Path | None:
        """Return the `last` or the `best` checkpoint by the index; `None` where there is none."""
        name = self._index().get(which)
        older = self.folder / f"{which}.pt"  # of a run of 0.1
        return self.folder / name if name else older if older.is_file() else None

    def complete(self) -> bool:
        """Whether a finished run's last checkpoint is as it was written, or all were deleted."""
        try:
            return not self._files() or _intact(self.path("last"))
        except LabError:
            return False

    def _index(self) -> dict[str, str | None]:
        path = self.folder / INDEX
        if not path.exists():
            return {}
        names: dict[str, str | None] = checked(read_json_object(path), _INDEX, str(path))
        if any(name and not _NAME.fullmatch(name) for name in (names["last"], names["best"])):
            raise LabError(f"{path} is damaged: it names no checkpoint")  # but any other place
        return names

    def _files(self) -> list[Path]:
        """List the checkpoints, the newest first."""
        found = self.folder.iterdir() if self.folder.is_dir() else ()
        return sorted((p for p in found if _NAME.fullmatch(p.name)), key=_step, reverse=True)

    def _of_step(self, step: int | None) -> Path | None:
        return next((p for p in self._files() if _step(p) == step and _intact(p)), None)


def _step(path: Path) -> int:
    return int(path.name.split("-")[1])


def _intact(path: Path | None) -> bool:
    try:
        with _opened(path or Path()) as file:
            _compare(file, (path or Path()).name)
    except (OSError, LabError, DamagedCheckpointError):
        return False
    return True


def load_weights(source: str) -> State:
    """Read the network's weights from a checkpoint file or a run's folder (best, else last)."""
    path: Path | None = Path(source)
    if Path(source).is_dir():
        checkpoints = Checkpoints(Path(source) / "checkpoints")
        path = checkpoints.path("best") or checkpoints.path("last")
    if path is None or not path.is_file():
        raise LabError(f"no checkpoint at {source}")
    try:
        state = read(path)
    except DamagedCheckpointError as error:
        raise LabError(f"checkpoint is damaged ({error})") from error
    weights = state.get("model", state)
    if not isinstance(weights, dict):
        raise LabError(f"{path} holds no weights")
    for name, value in weights.items():
        if not isinstance(name, str) or not _is_plain(value):
            raise LabError(f"{path} holds something other than weights")
    return weights


def _is_plain(value: Any) -> bool:
    """Whether a value is a tensor with values of its own: dense, real, and on the CPU."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and value.device.type == "cpu"
        and not value.is_complex()
        and not value.is_quantized
        and value.untyped_storage().nbytes() >= value.numel() * value.element_size()
    )
