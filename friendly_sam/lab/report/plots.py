"""Pictures: one look for all of them, light and dark, safe for colour-blind readers.

Colours are those of Okabe and Ito (2008); a method keeps its colour and its marker in every
picture, so nothing is told by colour alone.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Theme = Literal["light", "dark"]

_INK = {"light": ("#1b1f24", "#d0d7de", "#ffffff"), "dark": ("#e6edf3", "#3d444d", "#0d1117")}
"""Text, grid and ground of each theme."""

_METHODS = ("SGD", "AdamW", "SAM", "F-SAM", "ASAM", "F-ASAM", "FisherSAM", "F-FisherSAM")
_COLOURS = {
    "light": ["#5f6b76", "#5f6b76", "#d55e00", "#0072b2", "#e69f00", "#56b4e9", "#009e73"],
    "dark": ["#a3adb8", "#a3adb8", "#ff8a3d", "#4db2ec", "#f2b93b", "#8fd3f7", "#2fd1a5"],
}
_EXTRA = {"light": "#cc79a7", "dark": "#e39cc4"}
CROWD = 7
"""Lines beyond which the legend stands below the chart."""
_STYLES = ("-", "--", "-.", ":")
_MARKERS = ("D", "D", "s", "o", "^", "v", "P", "X")


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a chart."""

    label: str
    """Its name in the legend."""
    x: Sequence[float]
    """Where the points are."""
    y: Sequence[float]
    """Their heights."""
    error: Sequence[float] | None = None
    """Half the height of the band around them."""
    points: bool = True
    """Mark each point (few of them) or not (many)."""
    family: str = ""
    """The method whose colour it takes (default: the label)."""


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A chart of lines."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    """Spread x out by ratios, with a tick at each value."""
    ceiling: float = math.inf
    """What no value can exceed: bands and bars end there."""
    description: str = ""
    """What it shows, for those who cannot see it."""


def draw(chart: Chart, *, kind: Literal["png", "svg"], theme: Theme = "light") -> bytes:
    """Draw a chart."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    ink, grid, ground = _INK[theme]
    style: dict[Any, Any] = {
        "font.size": 11,
        "font.family": "sans-serif",
        "svg.fonttype": "path",
        "svg.hashsalt": "friendly-sam",
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": ink,
        "xtick.color": ink,
        "ytick.color": ink,
    }
    with matplotlib.rc_context(style):
        crowded = len(chart.series) > CROWD
        height = 4.6 + 0.2 * len(chart.series) if crowded else 4.4
        figure = Figure(figsize=(7.2, height), dpi=160, facecolor=ground, layout="constrained")
        axes = figure.add_subplot(facecolor=ground)
        for series, look in zip(chart.series, _looks(chart, theme), strict=True):
            _line(axes, series, look, chart.ceiling)
        if chart.log_x:
            _log_ticks(axes, sorted({x for series in chart.series for x in series.x}))
        axes.set(xlabel=chart.x_label, ylabel=chart.y_label)
        axes.set_title(chart.title, loc="left", fontweight="bold", fontsize=12)
        axes.grid(color=grid, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        if crowded:
            figure.legend(loc="outside lower left", frameon=False, fontsize=8, handlelength=3.5)
        elif chart.series:
            axes.legend(frameon=False)
        buffer = io.BytesIO()
        # Without a date two runs of the same report are the same file.
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(buffer, format=kind, facecolor=ground, metadata=metadata)
    return buffer.getvalue()


@dataclass(frozen=True)
class _Look:
    colour: str
    marker: str
    style: str


def _looks(chart: Chart, theme: Theme) -> list[_Look]:
    """Give every line a look of its own; a method has the same one in every chart."""
    colours = [*_COLOURS[theme], _EXTRA[theme]]
    looks: dict[int, _Look] = {}
    taken: set[tuple[str, str]] = set()

    def give(index: int, which: Sequence[int], styles: Sequence[str]) -> None:
        every = [(i, style) for style in _STYLES for i in range(len(colours))]
        wanted = [(i, style) for style in styles for i in which]
        free = [look for look in (*wanted, *every) if (colours[look[0]], look[1]) not in taken]
        i, style = free[0] if free else every[index % len(every)]
        taken.add((colours[i], style))
        looks[index] = _Look(colours[i], _MARKERS[i], style)

    families = [series.family or series.label for series in chart.series]
    for index, family in enumerate(families):
        if family in _METHODS:
            styles = _STYLES[1:] if _is_flat(chart.series[index]) else _STYLES
            give(index, [_METHODS.index(family)], styles)
    for index, family in enumerate(families):
        if family not in _METHODS:
            give(index, [*range(2, len(colours)), 0], _STYLES)
    return [looks[index] for index in range(len(families))]


def _is_flat(series: Series) -> bool:
    """Whether it is the level of a base optimizer, which has no radius."""
    family = series.family or series.label
    return len(series.x) > 1 and family in ("SGD", "AdamW") and series.points


def _line(axes: Any, series: Series, look: _Look, ceiling: float) -> None:
    colour, flat = look.colour, _is_flat(series)
    axes.plot(
        series.x,
        series.y,
        color=colour,
        marker=look.marker if series.points and not flat else None,
        linestyle=look.style,
        markersize=6,
        linewidth=2,
        label=series.label,
    )
    if series.error is not None:
        low = [y - e for y, e in zip(series.y, series.error, strict=True)]
        high = [min(y + e, ceiling) for y, e in zip(series.y, series.error, strict=True)]
        axes.fill_between(series.x, low, high, color=colour, alpha=0.16, linewidth=0)
        if series.points and not flat:
            above = [h - y for h, y in zip(high, series.y, strict=True)]
            reach = [series.error, above]
            axes.errorbar(series.x, series.y, yerr=reach, fmt="none", ecolor=colour, capsize=3)


def _log_ticks(axes: Any, values: list[float]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.minorticks_off()
