"""A run's folder: written while the run goes on, read by reports.

config.yaml        every setting, as used
environment.json   versions, commit, machine; an entry each time the run was started
metrics.jsonl      a line an epoch, readable while the run goes on
status.json        running, finished or failed; a run that was cut off stays `running`
checkpoints/       last, previous, best
tensorboard/       the metrics again, as TensorBoard events
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, cast

from friendly_sam.lab.config import RunConfig
from friendly_sam.lab.environment import environment
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.files import write_atomically
from friendly_sam.lab.parsing import from_yaml, to_yaml

if TYPE_CHECKING:
    from hashlib import _Hash as Digest

State = Literal["running", "finished", "failed"]

LOCK = ".fsam-lock"
"""The first file of a run's folder; where it stands alone, the run was cut off as it began."""


class Recorder:
    """Writes one run's folder.

    Use as a context manager: an exception marks the run failed, except an interrupt, which
    leaves it `running`, that is cut off, for `--resume`.

    Args:
        folder: the run's folder; made if it is not there.
        config: the resolved config.
        position: bytes of `metrics.jsonl` to keep: those that the checkpoint knows of.
        digest: SHA-256 of those bytes, where it is known.
        epoch: the epoch that the run goes on from.
        resumed: whether it goes on from a checkpoint at all.
    """

    def __init__(
        self,
        folder: Path,
        config: RunConfig,
        *,
        position: int = 0,
        digest: str = "",
        epoch: int = 0,
        resumed: bool = False,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._open = contextlib.ExitStack()
        self._tensorboard: Any = None
        with contextlib.ExitStack() as stack:
            stack.enter_context(_lock(folder / LOCK))
            path = folder / "metrics.jsonl"
            self._digest = _digest_of_kept(path, position, digest)
            self._metrics = stack.enter_context(_open_metrics(path, position))
            write_atomically(folder / "config.yaml", to_yaml(config))
            self._start(epoch, resumed)
            if config.engine.tensorboard:
                from torch.utils.tensorboard.writer import SummaryWriter

                self._tensorboard = SummaryWriter(str(folder / "tensorboard"), purge_step=epoch)
                stack.callback(self._tensorboard.close)
            self._status("running")
            self._open = stack.pop_all()

    def _start(self, epoch: int, resumed: bool) -> None:
        path = self.folder / "environment.json"
        starts: list[dict[str, Any]] = []
        if resumed:
            with contextlib.suppress(OSError, ValueError, KeyError):
                starts = json.loads(path.read_text(encoding="utf-8"))["starts"]
        starts.append({"time": _now(), "epoch": epoch, **environment()})
        write_atomically(path, json.dumps({"starts": starts}, indent=2) + "\n")

    def _status(self, state: State, **more: Any) -> None:
        status = {"state": state, "time": _now(), **more}
        write_atomically(self.folder / "status.json", json.dumps(status, indent=2) + "\n")

    def sync(self) -> tuple[int, str]:
        """Flush the metrics to the disk; give their size and SHA-256 for a checkpoint to keep."""
        os.fsync(self._metrics.fileno())
        return self._metrics.tell(), self._digest.hexdigest()

    def epoch(self, metrics: Mapping[str, float]) -> None:
        """Write the metrics of an epoch."""
        line = json.dumps(metrics).encode() + b"\n"
        self._metrics.write(line)
        self._metrics.flush()
        self._digest.update(line)
        if self._tensorboard is not None:
            for name, value in metrics.items():
                if name != "epoch":
                    tag = name.replace("_", "/", 1)
                    self._tensorboard.add_scalar(tag, value, int(metrics["epoch"]))

    def finish(self) -> None:
        """Mark the run as complete."""
        _, metrics = self.sync()
        config = hashlib.sha256((self.folder / "config.yaml").read_bytes()).hexdigest()
        self._status("finished", sha256={"metrics.jsonl": metrics, "config.yaml": config})

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: Any
    ) -> None:
        if isinstance(error, Exception):
            with contextlib.suppress(OSError):
                self._status("failed", message=str(error))
        with contextlib.suppress(OSError):
            self._open.close()


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
        """Tell whether the run came to its end."""
        return self.state == "finished"

    def series(self, name: str) -> list[float]:
        """Give one metric over the epochs that have it."""
        return [line[name] for line in self.metrics if name in line]

    def final(self, name: str) -> float:
        """Give a metric of the last epoch."""
        values = self.series(name)
        if not values:
            raise LabError(f"{self.folder} has no {name} yet")
        return values[-1]


def is_run(folder: Path) -> bool:
    """Tell whether a folder holds the records of a run."""
    return (folder / "config.yaml").is_file() and (folder / "status.json").is_file()


def run_state(folder: Path) -> State | None:
    """Give a run's state; `None` where there is no run."""
    if not is_run(folder):
        return None
    state = _json(folder / "status.json").get("state")
    if state not in ("running", "finished", "failed"):
        raise LabError(f"{folder / 'status.json'} holds no known state: {state!r}")
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
    status, path = _json(folder / "status.json"), folder / "environment.json"
    if state == "finished":
        _check_digests(folder, status)
    return Run(
        folder=folder,
        config=from_yaml(folder / "config.yaml") if config is None else config,
        state=state,
        message=str(status.get("message", "")),
        metrics=tuple(_metrics(folder / "metrics.jsonl")),
        environment=_json(path) if path.exists() else {},
    )


def _metrics(path: Path) -> list[dict[str, float]]:
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    metrics = []
    for number, line in enumerate(lines[:-1], start=1):  # what follows the last newline is torn
        try:
            values = json.loads(line)
        except ValueError as error:
            raise LabError(f"{path}, line {number} is damaged") from error
        if not isinstance(values, dict):
            raise LabError(f"{path}, line {number} holds no metrics")
        metrics.append(values)
    return metrics


def _json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LabError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise LabError(f"{path} is damaged") from error
    if not isinstance(values, dict):
        raise LabError(f"{path} is damaged")
    return values


def _check_digests(folder: Path, status: Mapping[str, Any]) -> None:
    """Refuse the files of a finished run that are not those that it wrote."""
    digests = status.get("sha256", {})  # runs of older versions have none
    if not isinstance(digests, dict):
        raise LabError(f"{folder / 'status.json'} is damaged")
    for name, digest in digests.items():
        path = folder / Path(name).name
        content = path.read_bytes() if path.is_file() else b""
        if hashlib.sha256(content).hexdigest() != digest:
            raise LabError(f"{path} is damaged: it is not what the finished run wrote")


def _digest_of_kept(path: Path, position: int, digest: str) -> Digest:
    """Digest the first bytes of a file, and refuse others than those of the checkpoint."""
    content = path.read_bytes()[:position] if position and path.exists() else b""
    found = hashlib.sha256(content)
    if digest and len(content) == position and found.hexdigest() != digest:
        raise LabError(f"{path} is damaged: it is not what the checkpoint knows of")
    return found


def _open_metrics(path: Path, position: int) -> IO[bytes]:
    """Open for writing after the first `position` bytes; later ones come again."""
    size = path.stat().st_size if path.exists() else 0
    if size < position:
        raise LabError(f"{path} is damaged: {size} bytes, the checkpoint knows of {position}")
    file = path.open("ab")
    file.truncate(position)
    file.seek(0, os.SEEK_END)
    return file


def _lock(path: Path) -> IO[bytes]:
    """Keep a second process from writing to the same folder; the system frees it on exit."""
    file = path.open("ab")
    with contextlib.suppress(ImportError):
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.close()
            raise LabError(f"another process is writing to {path.parent}") from error
    return file


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
