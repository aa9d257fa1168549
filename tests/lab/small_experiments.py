"""Experiments so small that a test can run them: the real ones with fewer epochs, seeds, trials."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from friendly_sam.lab.paper import step_cost, tuning
from friendly_sam.lab.paper.experiment import SEEDS
from friendly_sam.lab.paper.experiments import figure2, figures, scales, tables


def shrink(monkeypatch: pytest.MonkeyPatch, *, epochs: int = 1, seeds: int = 3) -> None:
    """Make every `mini` experiment tiny: the configs reach worker processes as values."""
    monkeypatch.setitem(scales._EPOCHS, "mlp", epochs)
    monkeypatch.setitem(scales._EPOCHS, "cnn", epochs)
    monkeypatch.setitem(SEEDS, "mini", seeds)
    monkeypatch.setattr(tuning, "TRIALS", tuning.Trials(wide=1, near=1))
    monkeypatch.setattr(step_cost, "ROUNDS", 3)  # the first warms up
    monkeypatch.setattr(step_cost, "STEPS", 1)
    monkeypatch.setitem(figures.RADII["mini"], "cifar10", (0.1, 0.4))
    monkeypatch.setitem(scales.NETWORKS, "mini", {"MLP": "mlp"})
    monkeypatch.setitem(tables.NOISES, "mini", (0.2, 0.8))
    for module in (tables, figures, figure2):
        monkeypatch.setattr(module, "DATA", ("cifar10",))


def metrics(folder: Path) -> dict[str, str]:
    """Give the accuracies of every run below a folder: what must not change."""
    found = {}
    for path in sorted(folder.glob("*/metrics.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        found[path.parent.name] = str([(x["train_loss"], x.get("test_accuracy")) for x in lines])
    return found
