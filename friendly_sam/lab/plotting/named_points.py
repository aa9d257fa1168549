"""Names beside the points of a panel, so that a crowd of them can still be read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from friendly_sam.lab.plotting.palette import Ink

if TYPE_CHECKING:
    from friendly_sam.lab.plotting.panels import Series

NEAR = 0.15
"""Points that lie closer than this, from left to right, share a column of names."""
GAP, LINE, LETTER = 0.05, 0.065, 0.02
"""From the points to their names, between lines, and the width of a letter."""


@dataclass(frozen=True)
class _Name:
    """A point in units of the points' range, and where its name begins."""

    point: Series
    x: float
    y: float
    left: float = 0.0
    height: float = 0.0

    def covers(self, other: _Name) -> bool:
        """Whether the name lies on another point, or on its name."""
        right = self.left + LETTER * len(self.point.label)
        on_point = self.left <= other.x <= right and abs(self.height - other.y) < LINE
        on_name = right > other.left and abs(self.height - other.height) < LINE
        return on_point or on_name


def name_points(axes: Any, points: Sequence[Series], ink: Ink) -> None:
    """Write the names of points beside them; a crowd gets a column of names and thin lines."""
    reach = [0.0 if point.error is None else point.error[0] for point in points]
    xs = [point.x[0] for point in points]
    low = min(point.y[0] - error for point, error in zip(points, reach, strict=True))
    high = max(point.y[0] + error for point, error in zip(points, reach, strict=True))
    wide, tall = max(max(xs) - min(xs), 1e-9), max(high - low, 1e-9)
    axes.set_xlim(min(xs) - 0.08 * wide, max(xs) + 0.6 * wide)
    axes.set_ylim(low - 0.04 * tall, high + 0.04 * tall)
    names = [_Name(p, (p.x[0] - min(xs)) / wide, (p.y[0] - low) / tall) for p in points]
    for column in _columns(names):
        for name in column:
            point = name.point
            axes.annotate(
                point.label, (point.x[0], point.y[0]),
                (min(xs) + wide * name.left, low + tall * name.height),
                va="center", ha="left", fontsize=8.5,
                arrowprops={"arrowstyle": "-", "linewidth": 0.5, "color": ink.text, "alpha": 0.5}
                if len(column) > 1 else None,
            )  # fmt: skip
            if point.error is not None:
                axes.errorbar(
                    point.x, point.y, point.error, ecolor=ink.text, elinewidth=0.8, fmt="none",
                    alpha=0.5,
                )  # fmt: skip


def _columns(names: Sequence[_Name]) -> list[list[_Name]]:
    """Place the names; a column that would cover a later one takes its points in."""
    columns: list[list[_Name]] = []
    for name in sorted(names, key=lambda name: name.x):
        if columns and name.x - columns[-1][-1].x < NEAR:
            columns[-1].append(name)
        else:
            columns.append([name])
    while True:
        placed = [_placed(column) for column in columns]
        clash = next(
            (
                (first, second)
                for first in range(len(placed))
                for second in range(first + 1, len(placed))
                if any(one.covers(other) for one in placed[first] for other in placed[second])
            ),
            None,
        )
        if clash is None:
            return placed
        first, second = clash
        columns[first : second + 1] = [[n for c in columns[first : second + 1] for n in c]]


def _placed(column: Sequence[_Name]) -> list[_Name]:
    """Stack names to the right of their points, as near to their heights as they fit."""
    column = sorted(column, key=lambda name: name.y)
    left = max(name.x for name in column) + GAP
    heights: list[float] = []
    for name in column:
        heights.append(max(name.y, heights[-1] + LINE if heights else -math.inf))
    shift = (sum(heights) - sum(name.y for name in column)) / len(column)
    shift = min(max(shift, heights[-1] - 1.0), heights[0])
    return [
        _Name(name.point, name.x, name.y, left, height - shift)
        for name, height in zip(column, heights, strict=True)
    ]
