"""The lab: train networks with any method of `friendly_sam`, keep records, compare runs.

Data flows one way, and each arrow is one room:

    config -> data -> models -> training -> records -> report

A run is one value (`config`), its results are one folder (`records`), and a report reads such
folders and nothing else. `runner` does many runs, `sharpness` looks at what they found, `paper` is
everything about the paper, `bench` measures cost, and `cli` is the command `fsam`. A room imports
only what lies below it, in the order of `tests/lab/test_rooms.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from friendly_sam.lab.training.classifier import Classifier

__all__ = ["load"]


def load(folder: str | Path) -> Classifier:
    """Return the trained network of a run's folder, with the names of its classes.

    Example:
        >>> from friendly_sam.lab import load
        >>> load("runs/pets")("cat.jpg")                # doctest: +SKIP
        [('Bengal', 0.83), ('Egyptian Mau', 0.12), ('Abyssinian', 0.03)]
    """
    from friendly_sam.lab.training.classifier import load_classifier

    return load_classifier(folder)
