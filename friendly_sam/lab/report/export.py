"""The table of `fsam report` for programs: CSV, and JSON with every seed and setting."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from typing import Any

from friendly_sam.lab.config.yaml import flatten
from friendly_sam.lab.report.groups import state_of
from friendly_sam.lab.report.runs import Row

COLUMNS = (
    "data", "runs", "label", "state", "n", "test_accuracy", "test_accuracy_std",
    "best_epoch_accuracy", "train_loss", "seconds_per_epoch", "against", "difference",
    "difference_low", "difference_high",
)  # fmt: skip


def as_csv(rows: Sequence[Row]) -> str:
    """Return the table as CSV, one line for each group of runs."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(map(record, rows))
    return text.getvalue()


def as_json(rows: Sequence[Row]) -> str:
    """Return the table as JSON: what the CSV has, accuracies by seed, and all settings."""
    return json.dumps(
        [
            {
                **record(row),
                "test_accuracy_by_seed": row.group.by_seed("test_accuracy"),
                "folders": [run.folder.name for run in row.group.runs],
                "settings": flatten(row.group.runs[0].config),
            }
            for row in rows
        ],
        indent=2,
    )


def record(row: Row) -> dict[str, Any]:
    """Return the numbers of a row by name."""
    difference = row.difference
    return {
        "data": row.task,
        "runs": row.group.name,
        "label": row.group.label,
        "state": state_of(row.group.runs[0]),
        "n": row.accuracy.n,
        "test_accuracy": row.accuracy.mean,
        "test_accuracy_std": None if math.isnan(row.accuracy.std) else row.accuracy.std,
        "best_epoch_accuracy": row.best.mean,
        "train_loss": row.loss.mean,
        "seconds_per_epoch": row.seconds,
        "against": row.against if difference is not None else "",
        "difference": None if difference is None else difference.mean,
        "difference_low": None if difference is None else difference.low,
        "difference_high": None if difference is None else difference.high,
    }
