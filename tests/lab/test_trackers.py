"""Metrics of a run in Weights & Biases and MLflow: offline, into local files, read back."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from lab_runs import Tiny

from friendly_sam.lab.cli import main
from friendly_sam.lab.records.run import read_run
from friendly_sam.lab.runner.trackers import TRACKERS, TrackedRun
from friendly_sam.lab.training.trainer import train

FAST = ["--preset", "digits-mlp-fsam", "--epochs", "2", "--data.train_size", "100"]
QUIET = ["--engine.device", "cpu", "--engine.tensorboard", "false"]


class Notes:
    """A tracker that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def start(self, name: str, settings: Mapping[str, Any]) -> None:
        self.said.append((name, settings["method.name"]))

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        self.said.append((step, dict(metrics)))

    def finish(self, *, failed: bool) -> None:
        self.said.append(failed)


def test_a_tracker_hears_every_epoch_with_the_perturbation(
    tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = Notes()
    monkeypatch.setitem(TRACKERS, "notes", lambda: notes)
    config = tiny("run", method={"name": "fsam", "rho": 0.1})
    with TrackedRun(config, ["notes"]) as tracked:
        folder = train(config, listener=tracked)
    (started, (step, first), (_, second), failed) = notes.said
    assert started == ("run", "fsam")
    assert (step, failed) == (4, False)
    assert [first, second] == list(read_run(folder).metrics)
    assert first["perturbation_norm"] == pytest.approx(0.1, rel=1e-4)
    assert math.isfinite(first["perturbed_loss"])
    with pytest.raises(RuntimeError, match="stop"), TrackedRun(config, ["notes"]):
        raise RuntimeError("stop")
    assert notes.said[-1] is True


def test_the_base_optimizer_has_no_perturbation_to_log(tiny: Tiny) -> None:
    metrics = read_run(train(tiny("run", method={"name": "base"}, epochs=1))).metrics[0]
    assert not {"perturbation_norm", "perturbed_loss"} & metrics.keys()


def test_a_missing_tracker_is_named_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert main(["train", *FAST, *QUIET, "--track", "wandb"]) == 2
    assert "--track wandb needs wandb: pip install" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
    assert main(["train", "--track", "comet"]) == 2


@pytest.mark.filterwarnings("default")
def test_mlflow_has_settings_and_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    assert main(["train", *FAST, *QUIET, "--track", "mlflow", "--output", "run"]) == 0
    (run,) = mlflow.search_runs(experiment_names=["friendly-sam"], output_format="list")
    metrics = read_run(Path("run")).metrics
    assert run.info.status == "FINISHED"
    assert run.data.params["method.name"] == "fsam"
    assert run.data.metrics["perturbed_loss"] == metrics[-1]["perturbed_loss"]
    assert run.data.metrics["test_accuracy"] == metrics[-1]["test_accuracy"]


@pytest.mark.filterwarnings("default")
def test_wandb_has_settings_and_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    assert main(["train", *FAST, *QUIET, "--track", "wandb", "--output", "run"]) == 0
    (record,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    content, end = record.read_bytes(), time.monotonic() + 30
    last = read_run(Path("run")).metrics[-1]
    while b"test_accuracy" not in content and time.monotonic() < end:
        time.sleep(0.2)  # wandb's own process writes on after `finish` has returned
        content = record.read_bytes()
    for name in ("perturbation_norm", "perturbed_loss", "test_accuracy"):
        assert name.encode() in content
    assert json.dumps(last["perturbed_loss"]).encode() in content
