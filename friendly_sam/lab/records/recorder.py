"""A run's folder, written while the run goes on.

config.yaml        every setting, as used
inputs.json        class names, and what the network expects of an image
environment.json   versions, commit, machine; an entry each time the run was started
metrics.jsonl      one line per epoch, readable while the run goes on
status.json        running, finished or failed; a run that was cut off stays `running`
checkpoints/       the newest, the one before, the best; `index.json` has their names
tensorboard/       the metrics again, as TensorBoard events
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.config.yaml import to_yaml
from friendly_sam.lab.errors import LabError, RunError
from friendly_sam.lab.files import open_to_append, refuse_link, write_atomically
from friendly_sam.lab.reading import checked, read_bytes, read_json_object
from friendly_sam.lab.records.environment import environment
from friendly_sam.lab.records.events import Events
from friendly_sam.lab.records.run import State


class Recorder:
    """Writes one run's folder.

    Use as a context manager: an exception marks the run failed, except an interrupt or a reader
    that has gone, which leaves it `running`, that is cut off, for `--resume`.

    Args:
        folder: the run's folder, see `claimed`.
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
        self.folder = folder
        refuse_link(folder / "tensorboard")
        path = folder / "metrics.jsonl"
        content = _known_metrics(path, position, digest)
        self._digest = hashlib.sha256(content)
        write_atomically(folder / "config.yaml", to_yaml(config))
        self._status("running")
        self._start(epoch, resumed)
        write_atomically(path, content)  # lines after the checkpoint come again
        self._metrics = open_to_append(path)
        self._events = Events(folder / "tensorboard", epoch) if config.engine.tensorboard else None

    def _start(self, epoch: int, resumed: bool) -> None:
        path = self.folder / "environment.json"
        starts: list[dict[str, Any]] = []
        if resumed:
            with contextlib.suppress(LabError):
                starts = checked(read_json_object(path), {"starts": [dict]}, str(path))["starts"]
        starts.append({"time": _now(), "epoch": epoch, **environment()})
        write_atomically(path, json.dumps({"starts": starts}, indent=2) + "\n")

    def _status(self, state: State, **more: Any) -> None:
        status = {"state": state, "time": _now(), **more}
        write_atomically(self.folder / "status.json", json.dumps(status, indent=2) + "\n")

    def sync(self) -> tuple[int, str]:
        """Flush the metrics to the disk; return their size and SHA-256 for a checkpoint to keep."""
        os.fsync(self._metrics.fileno())
        return self._metrics.tell(), self._digest.hexdigest()

    def epoch(self, metrics: Mapping[str, float]) -> None:
        """Write the metrics of an epoch."""
        line = json.dumps(metrics).encode() + b"\n"
        try:
            self._metrics.write(line)
            self._metrics.flush()
            if self._events is not None:
                self._events.epoch(metrics)
        except OSError as error:
            raise RunError(f"cannot write metrics to {self.folder}: {error.strerror}") from error
        self._digest.update(line)

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
        if isinstance(error, Exception) and not isinstance(error, BrokenPipeError):
            with contextlib.suppress(OSError):
                self._status("failed", message=str(error))
        for file in (self._metrics, self._events):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()


def _known_metrics(path: Path, position: int, digest: str) -> bytes:
    """Return the lines that a checkpoint knows of; refuse others."""
    content = read_bytes(path)[:position] if position and path.exists() else b""
    if len(content) < position:
        raise LabError(
            f"{path} is damaged: {len(content)} bytes, the checkpoint knows of {position}"
        )
    if digest and hashlib.sha256(content).hexdigest() != digest:
        raise LabError(f"{path} is damaged: it is not what the checkpoint knows of")
    return content


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
