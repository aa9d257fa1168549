"""The metrics of a run as TensorBoard reads them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from friendly_sam.lab.files import make_folder, open_to_append


class Events:
    """A file of TensorBoard events.

    TensorBoard's own writer hands events to a thread, whose failure on a full disk is a traceback
    of its own. Here a write that fails raises where it is asked for.

    Args:
        folder: where TensorBoard looks.
        epoch: the epoch that the run goes on from; what older files say of later ones is void.
    """

    def __init__(self, folder: Path, epoch: int) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = event_pb2, summary_pb2
        make_folder(folder)
        name = f"events.out.tfevents.{int(time.time())}.{secrets.token_hex(4)}"
        self._file = RecordWriter(open_to_append(folder / name))
        self._write(file_version="brain.Event:2")
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._write(session_log=start, step=epoch)

    def epoch(self, metrics: Mapping[str, float]) -> None:
        """Write the metrics of an epoch: `test_accuracy` becomes `test/accuracy`."""
        named = {name.replace("_", "/", 1): value for name, value in metrics.items()}
        values = [
            self._summary.Summary.Value(tag=tag, simple_value=value)
            for tag, value in named.items()
            if tag != "epoch"
        ]
        self._write(summary=self._summary.Summary(value=values), step=int(metrics["epoch"]))
        self._file.flush()

    def close(self) -> None:
        """Write what is left, and close the file."""
        self._file.close()

    def _write(self, **content: Any) -> None:
        event = self._event.Event(wall_time=time.time(), **content)
        self._file.write(event.SerializeToString())
