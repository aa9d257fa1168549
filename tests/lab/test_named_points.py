"""Names beside points: none covers another, and every interval is inside the axes."""

from __future__ import annotations

import random

import pytest

from friendly_sam.lab.plotting.named_points import name_points
from friendly_sam.lab.plotting.palette import INKS
from friendly_sam.lab.plotting.panels import Series

NAMES = [
    "SGD", "SGD, 1.1 times the epochs", "SGD, twice the epochs", "SAM", "F-SAM", "F-SAM, 1/8",
    "F-SAM, 1/16", "F-SAM, every 2nd step", "F-SAM, last eighth of training", "MSAM", "Stale-SAM",
    "LookSAM, every 10th step",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(8))
def test_names_do_not_cover_each_other(seed: int) -> None:
    from matplotlib import pyplot
    from matplotlib.text import Text

    dice = random.Random(seed)
    costs = [1.0, 1.04, 1.06, 1.1, 1.5, 1.6, 1.84, 1.9, 2.0, 2.1]
    points = [
        Series(label=name, x=[dice.choice(costs)], y=[dice.uniform(87, 91)], error=[0.8])
        for name in NAMES
    ]
    figure, axes = pyplot.subplots(figsize=(5.0, 3.7), layout="constrained")
    try:
        name_points(axes, points, INKS["light"])
        figure.draw_without_rendering()
        boxes = [Text.get_window_extent(text) for text in axes.texts]  # without its line
        low, high = axes.get_ylim()
    finally:
        pyplot.close(figure)
    assert sorted(text.get_text() for text in axes.texts) == sorted(NAMES)
    for number, box in enumerate(boxes):
        for other in boxes[:number]:
            both = box.intersection(box, other)
            assert both is None or both.height < 0.25 * box.height
    assert all(low < point.y[0] - 0.8 and point.y[0] + 0.8 < high for point in points)
