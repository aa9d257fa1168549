"""Panels of lines, bars or named points, from plain data."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from friendly_sam.lab.plotting.canvas import (
    Kind,
    Paint,
    legend,
    legend_below,
    legend_columns,
    log_ticks,
    render,
    title,
)
from friendly_sam.lab.plotting.named_points import name_points
from friendly_sam.lab.plotting.palette import INKS, Ink, Look, Theme, dashed, looks

CHART = (6.0, 3.7)
"""Inches of a chart whose legend has one row."""
SMALL_TITLE = 36
"""Characters of a line of the title of a small panel, which is five inches wide."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a panel."""

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
    level: bool = False
    """The level of something that has no x: a dashed line across."""
    family: str = ""
    """The method whose look it takes (default: the one that the label names)."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar with its error and the values it summarizes."""

    label: str
    height: float
    error: float | None = None
    values: Sequence[float] = ()


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One pair of axes: bars, or lines."""

    title: str
    y_label: str
    x_label: str = ""
    bars: Sequence[Bar] = ()
    series: Sequence[Series] = ()
    log_x: bool = False
    """Spread x out by ratios, with a tick at each value."""
    whole_x: bool = False
    """x counts something: ticks at whole numbers only."""
    log_y: bool = False
    named: bool = False
    """Each series is a point, with its name beside it."""
    ceiling: float = math.inf
    """What no value can exceed: bands and error bars end there."""
    description: str = ""
    """What it shows, for those who cannot see it."""


def draw_panels(panels: Sequence[Panel], kind: Kind) -> bytes:
    """Draw small panels, two side by side."""
    columns = min(2, len(panels))
    size = (5.0 * columns, 3.7 * -(-len(panels) // columns))
    return render(
        _paint(panels), kind=kind, panels=len(panels), columns=columns, size=size, dpi=130
    )


def draw_chart(panel: Panel, kind: Kind, theme: Theme = "light") -> bytes:
    """Draw one large panel with the legend below it, where it covers nothing."""
    return render(
        _paint([panel], below=True), kind=kind, theme=theme, size=chart_size(panel), dpi=192
    )


def chart_size(panel: Panel) -> tuple[float, float]:
    """Return the inches of a chart: it grows by the rows of its legend."""
    rows = math.ceil(len(panel.series) / legend_columns([s.label for s in panel.series]))
    return CHART[0], CHART[1] + 0.2 * max(rows - 1, 0)


def inline_svg(panel: Panel, key: str) -> str:
    """Return a small panel as SVG for a page: ids made unique, colours as CSS variables."""
    text = render(_paint([panel]), kind="svg", size=(5.0, 3.7), dpi=130, inline=True).decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    text = re.sub(r' id="([^"]+)"', lambda m: f' id="{key}-{m[1]}"' if m[1] in used else "", text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{key}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{key}-\1)", text)
    text = re.sub(r"font: (?:bold |)?([\d.]+)px [^;\"]*", _font, text)
    for number, colour in enumerate(INKS["light"].all()):
        text = text.replace(colour, f"var(--c{number})")
    return re.sub(r'<svg [^>]*?viewBox="([^"]+)"[^>]*>', r'<svg viewBox="\1">', text, count=1)


def _font(match: re.Match[str]) -> str:
    weight = "bold " if "bold" in match[0] else ""
    return f"font: {weight}{match[1]}px system-ui, sans-serif"


def _paint(panels: Sequence[Panel], *, below: bool = False) -> Paint:
    def paint(all_axes: Sequence[Any], ink: Ink) -> None:
        for axes, panel in zip(all_axes, panels, strict=True):
            _fill(axes, panel, ink)
            together = panel.title.replace(" %", "\N{NO-BREAK SPACE}%")  # "40 %" on one line
            title(axes, panel.title if below else textwrap.fill(together, SMALL_TITLE))
            if panel.named:
                name_points(axes, panel.series, ink)
            elif below and panel.series:
                legend_below(axes, [series.label for series in panel.series])
            elif panel.series:
                legend(axes, fontsize=9.5)

    return paint


def _fill(axes: Any, panel: Panel, ink: Ink) -> None:
    y_label = panel.y_label
    if panel.bars:
        _bars(axes, panel.bars, ink)
        axes.grid(visible=False, axis="x")
        if axes.get_ylim()[0] > 0:
            y_label += "\n(axis does not start at 0)"
    families = [series.family or series.label for series in panel.series]
    chosen = looks(families)
    if not any(series.points for series in panel.series):
        chosen = dashed(chosen)  # no marker tells lines apart
    for series, look in zip(panel.series, chosen, strict=True):
        _line(axes, series, look, ink, panel)
    if panel.whole_x:
        axes.xaxis.get_major_locator().set_params(integer=True)
    if panel.log_x:
        log_ticks(axes, [x for series in panel.series for x in series.x])
    if panel.log_y:
        axes.set_yscale("log")
        top = max(y for series in panel.series for y in series.y)
        axes.set_ylim(top * 1e-7, top * 3)  # below that there is nothing but rounding
    axes.set(xlabel=panel.x_label, ylabel=y_label)


def _line(axes: Any, series: Series, look: Look, ink: Ink, panel: Panel) -> None:
    colour = ink.colours[look.colour]
    marked = series.points and not series.level
    axes.plot(
        series.x,
        series.y,
        color=colour,
        alpha=look.strength,
        marker=look.marker if marked else None,
        linestyle="--" if series.level else look.dash,
        markersize=6,
        linewidth=2,
        label=series.label,
    )
    if series.error is None or panel.named:
        return
    low = [y - e for y, e in zip(series.y, series.error, strict=True)]
    high = [min(y + e, panel.ceiling) for y, e in zip(series.y, series.error, strict=True)]
    axes.fill_between(series.x, low, high, color=colour, alpha=0.16, linewidth=0)
    if marked:
        above = [h - y for h, y in zip(high, series.y, strict=True)]
        reach = [series.error, above]
        axes.errorbar(series.x, series.y, yerr=reach, fmt="none", ecolor=colour, capsize=3)


def _bars(axes: Any, bars: Sequence[Bar], ink: Ink) -> None:
    labels = [bar.label for bar in bars]
    for place, (bar, look) in enumerate(zip(bars, looks(labels), strict=True)):
        axes.bar(
            place,
            bar.height,
            width=0.72,
            color=ink.colours[look.colour],
            alpha=look.strength,
            hatch=look.hatch,
            edgecolor=ink.grid,
            label=bar.label,
        )
        if bar.error is not None:
            axes.errorbar(
                place, bar.height, yerr=bar.error, ecolor=ink.text, elinewidth=1.2, capsize=3,
                fmt="none",
            )  # fmt: skip
        for value in bar.values:
            axes.plot(
                place + 0.22, value, marker="o", markersize=3.2, color=ink.text, linestyle="none"
            )
    low = min(min([bar.height, *bar.values]) for bar in bars)
    high = max(max([bar.height + (bar.error or 0.0), *bar.values]) for bar in bars)
    reach = max(high - low, 1e-9)
    bottom = max(0.0, low - 0.6 * reach)
    axes.set_ylim(bottom, high + 0.08 * reach)
    short = len(labels) <= 4 and max(map(len, labels)) <= 12
    axes.set_xticks(
        range(len(labels)), labels, rotation=0 if short else 30, ha="center" if short else "right"
    )
