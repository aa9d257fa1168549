"""Rows so small that a test can run them: the real ones with fewer epochs, seeds and radii."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from friendly_sam.lab.paper.experiments import figure2 as investigation
from friendly_sam.lab.paper.experiments import figures as studies
from friendly_sam.lab.paper.experiments import scales, tables

SEEDS = 3


def shrink(monkeypatch: pytest.MonkeyPatch, *, epochs: int = 1, seeds: int = SEEDS) -> None:
    """Make every `mini` row tiny: the configs reach worker processes as values."""
    monkeypatch.setitem(scales._EPOCHS, "mlp", epochs)
    monkeypatch.setitem(scales._EPOCHS, "cnn", epochs)
    monkeypatch.setitem(scales.SEEDS, "mini", seeds)
    for data in ("cifar10", "cifar100"):
        monkeypatch.setitem(scales.RADII["mini"], data, (0.1, 0.4))
    monkeypatch.setitem(scales.NETWORKS, "mini", {"MLP": "mlp"})
    for module in (tables, studies, investigation):
        monkeypatch.setattr(module, "DATA", ("cifar10",))


def metrics(folder: Path) -> dict[str, str]:
    """Give the accuracies of every run below a folder: what must not change."""
    found = {}
    for path in sorted(folder.glob("*/metrics.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        found[path.parent.name] = str([(x["train_loss"], x["test_accuracy"]) for x in lines])
    return found
