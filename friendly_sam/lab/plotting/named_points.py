"""Names beside the points of a panel, so that a crowd of them can still be read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from friendly_sam.lab.plotting.palette import Ink

if TYPE_CHECKING:
    from friendly_sam.lab.plotting.panels import Series


def name_points(axes: Any, points: Sequence[Series], ink: Ink) -> None:
    """Write the names of points beside them; a crowd gets a column of names and thin lines."""
    xs, ys = [point.x[0] for point in points], [point.y[0] for point in points]
    wide, tall = (max(max(v) - min(v), 1e-9) for v in (xs, ys))
    axes.set_xlim(min(xs) - 0.08 * wide, max(xs) + 0.6 * wide)
    axes.set_ylim(min(ys) - 0.12 * tall, max(ys) + 0.12 * tall)
    for crowd in _crowds(points, 0.15 * wide):
        crowd.sort(key=lambda point: point.y[0])
        edge = max(point.x[0] for point in crowd)
        heights: list[float] = []
        for point in crowd:
            least = heights[-1] + 0.075 * tall if heights else -math.inf
            heights.append(max(point.y[0], least))
        shift = (sum(heights) - sum(point.y[0] for point in crowd)) / len(crowd)
        shift = max(shift, heights[-1] - max(ys) - 0.08 * tall)
        for point, height in zip(crowd, heights, strict=True):
            x, y = point.x[0], point.y[0]
            axes.annotate(
                point.label, (x, y), (edge + 0.05 * wide, height - shift),
                va="center", ha="left", fontsize=8.5,
                arrowprops={"arrowstyle": "-", "linewidth": 0.5, "color": ink.text, "alpha": 0.5}
                if len(crowd) > 1 else None,
            )  # fmt: skip
            if point.error is not None:
                axes.errorbar(
                    x, y, point.error, ecolor=ink.text, elinewidth=0.8, fmt="none", alpha=0.5
                )


def _crowds(points: Sequence[Series], near: float) -> list[list[Series]]:
    crowds: list[list[Series]] = []
    for point in sorted(points, key=lambda point: point.x[0]):
        if crowds and point.x[0] - crowds[-1][-1].x[0] < near:
            crowds[-1].append(point)
        else:
            crowds.append([point])
    return crowds
