"""Where people look: the metrics of a run in Weights & Biases or MLflow, beside TensorBoard.

A tracker is anything with the three methods of `Tracker`; each imports its tool when it starts.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from friendly_sam._machinery.install import how_to_install
from friendly_sam.lab.config.schema import RunConfig
from friendly_sam.lab.config.yaml import flatten
from friendly_sam.lab.errors import LabError
from friendly_sam.lab.training.trainer import Listener


class Tracker(Protocol):
    """Takes the metrics of one run."""

    def start(self, name: str, settings: Mapping[str, Any]) -> None:
        """Open the run under its name, with all its settings."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Take the metrics of an epoch; `step` counts training steps."""

    def finish(self, *, failed: bool) -> None:
        """Close the run."""


class WandbTracker:
    """Weights & Biases; its own variables say where to (`WANDB_PROJECT`, `WANDB_MODE`, ...)."""

    def start(self, name: str, settings: Mapping[str, Any]) -> None:
        """Open the run; without `WANDB_PROJECT` it belongs to friendly-sam."""
        import wandb

        project = os.environ.get("WANDB_PROJECT", "friendly-sam")
        self.run = wandb.init(project=project, name=name, config=dict(settings))

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log an epoch."""
        self.run.log(dict(metrics), step=step)

    def finish(self, *, failed: bool) -> None:
        """Close the run, with an exit code of 1 if it failed."""
        self.run.finish(exit_code=int(failed))


class MlflowTracker:
    """MLflow; its own variables say where to (`MLFLOW_TRACKING_URI`, `MLFLOW_EXPERIMENT_NAME`)."""

    def start(self, name: str, settings: Mapping[str, Any]) -> None:
        """Open the run; without `MLFLOW_EXPERIMENT_NAME` it belongs to friendly-sam."""
        import mlflow

        self.mlflow = mlflow
        if "MLFLOW_EXPERIMENT_NAME" not in os.environ:
            mlflow.set_experiment("friendly-sam")
        mlflow.start_run(run_name=name)
        mlflow.log_params({key: str(value) for key, value in settings.items()})

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log an epoch."""
        self.mlflow.log_metrics(dict(metrics), step=step)

    def finish(self, *, failed: bool) -> None:
        """Close the run."""
        self.mlflow.end_run("FAILED" if failed else "FINISHED")


TRACKERS: dict[str, Callable[[], Tracker]] = {"wandb": WandbTracker, "mlflow": MlflowTracker}
"""By the name on the command line, which is that of the extra too."""


class TrackedRun:
    """A listener of the trainer that hands each epoch to trackers. Use as a context manager."""

    def __init__(self, config: RunConfig, names: Sequence[str]) -> None:
        self.config = config
        self.trackers = {name: TRACKERS[name]() for name in dict.fromkeys(names)}

    def __enter__(self) -> TrackedRun:
        name = Path(self.config.output or "run").name
        for tool, tracker in self.trackers.items():
            try:
                tracker.start(name, flatten(self.config))
            except ImportError as error:
                raise LabError(f"--track {tool} needs {tool}: {how_to_install(tool)}") from error
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        for tracker in self.trackers.values():
            tracker.finish(failed=kind is not None)

    def step(self, epoch: int, batch: int, batches: int) -> None:
        """Pass over single steps: metrics come once per epoch."""

    def epoch(self, metrics: dict[str, float]) -> None:
        """Hand the metrics of an epoch to each tracker."""
        for tracker in self.trackers.values():
            tracker.log(metrics, int(metrics["step"]))


class Listeners:
    """Several listeners as one."""

    def __init__(self, *listeners: Listener) -> None:
        self.listeners = listeners

    def step(self, epoch: int, batch: int, batches: int) -> None:
        """Tell all of them of a batch."""
        for listener in self.listeners:
            listener.step(epoch, batch, batches)

    def epoch(self, metrics: dict[str, float]) -> None:
        """Tell all of them of an epoch."""
        for listener in self.listeners:
            listener.epoch(metrics)
