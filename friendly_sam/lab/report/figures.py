"""Pictures of the reproduction: panels of bars or lines, in one look, light and dark.

Colours are those of Okabe and Ito (2008). A method keeps colour and marker in every picture,
and a variant of it (`F-SAM, 1/8`) is told by its dash and hatch, so nothing is told by
colour alone. In the page a picture is inline SVG whose colours are CSS variables; beside
it stand PNG, PDF and SVG files.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from friendly_sam.lab.report.plots import Series

Kind = Literal["png", "pdf", "svg"]

INK, GRID = "#1b1f24", "#d0d7de"
"""Text and grid; the page replaces them by its own."""

GREY, VERMILION, BLUE, ORANGE = "#5f6b76", "#d55e00", "#0072b2", "#e69f00"
SKY, GREEN, PURPLE, BLACK = "#56b4e9", "#009e73", "#cc79a7", "#3a3f45"
FAMILIES: dict[str, tuple[str, str]] = {
    "SGD": (GREY, "D"),
    "AdamW": (GREY, "D"),
    "SGD/AdamW": (GREY, "D"),
    "SAM": (VERMILION, "s"),
    "F-SAM": (BLUE, "o"),
    "ASAM": (ORANGE, "^"),
    "F-ASAM": (SKY, "v"),
    "FisherSAM": (GREEN, "P"),
    "SAM-full": (PURPLE, "X"),
    "SAM-db": (GREEN, "P"),
    "SAM-noise": (SKY, "o"),
}
COLOURS = (INK, GRID, GREY, VERMILION, BLUE, ORANGE, SKY, GREEN, PURPLE, BLACK)
"""Every colour that a picture can hold."""
DASHES = ("-", "--", "-.", ":")
HATCHES = ("", "//", "xx", "..")


@dataclass(frozen=True, kw_only=True)
class Bar:
    """One bar with its error and the values it sums up."""

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
    log_y: bool = False
    stems: bool = False
    """Lines from the ground to each point (a spectrum)."""
    named: bool = False
    """Each series is a point, with its name beside it."""


def look(label: str, labels: Sequence[str]) -> tuple[str, str, str, str]:
    """Give colour, marker, dash and hatch of a method among those of its picture."""
    family = label.partition(",")[0].partition(" at ")[0]
    colour, marker = FAMILIES.get(family, (BLACK, "h"))
    variants = [name for name in labels if name.partition(",")[0].partition(" at ")[0] == family]
    place = variants.index(label) % len(DASHES) if label in variants else 0
    return colour, marker, DASHES[place], HATCHES[place]


def draw(panels: Sequence[Panel], kind: Kind, *, as_text: bool = False) -> bytes:
    """Draw panels side by side, two in a row.

    Args:
        panels: at least one.
        kind: PNG, PDF or SVG.
        as_text: letters of an SVG as text (for the page) and not as outlines.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {
        "font.size": 11,
        "font.family": "sans-serif",
        "svg.fonttype": "none" if as_text else "path",
        "svg.hashsalt": "friendly-sam",
        "text.color": INK,
        "axes.labelcolor": INK,
        "axes.edgecolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "hatch.linewidth": 0.6,
    }
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    with matplotlib.rc_context(style):
        size = (5.0 * columns, 3.7 * rows)
        figure = Figure(figsize=size, dpi=130, layout="constrained")
        if not as_text:
            figure.set_facecolor("white")
        else:
            figure.patch.set_alpha(0)
        for index, panel in enumerate(panels):
            axes = figure.add_subplot(rows, columns, index + 1)
            axes.patch.set_alpha(0)
            _fill(axes, panel)
        buffer = io.BytesIO()
        # Without a date, two reports of the same runs are the same file.
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
        figure.savefig(buffer, format=kind, metadata=metadata)
    return buffer.getvalue()


def _fill(axes: Any, panel: Panel) -> None:
    if panel.bars:
        _bars(axes, panel.bars)
    labels = [series.label for series in panel.series]
    for series in panel.series:
        _line(axes, series, labels, stems=panel.stems)
    if panel.log_x:
        values = sorted({x for series in panel.series for x in series.x})
        axes.set_xscale("log", base=2)
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.minorticks_off()
    if panel.log_y:
        axes.set_yscale("log")
        top = max(y for series in panel.series for y in series.y)
        axes.set_ylim(top * 1e-7, top * 3)  # below that there is nothing but rounding
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    axes.set_title(panel.title, loc="left", fontweight="bold", fontsize=11)
    axes.grid(color=GRID, linewidth=0.7, axis="y" if panel.bars else "both")
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if panel.named:
        _name_points(axes, panel.series)
    elif panel.series:
        axes.legend(frameon=False, fontsize=9.5)


def _name_points(axes: Any, points: Sequence[Series]) -> None:
    """Write the names of points beside them; a crowd gets a column of names and thin lines."""
    xs, ys = [point.x[0] for point in points], [point.y[0] for point in points]
    wide, tall = (max(max(v) - min(v), 1e-9) for v in (xs, ys))
    axes.set_xlim(min(xs) - 0.08 * wide, max(xs) + 0.6 * wide)
    axes.set_ylim(min(ys) - 0.12 * tall, max(ys) + 0.12 * tall)
    crowds: list[list[Series]] = []
    for point in sorted(points, key=lambda point: point.x[0]):
        if crowds and point.x[0] - crowds[-1][-1].x[0] < 0.15 * wide:
            crowds[-1].append(point)
        else:
            crowds.append([point])
    for crowd in crowds:
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
                arrowprops={"arrowstyle": "-", "linewidth": 0.5, "color": INK, "alpha": 0.5}
                if len(crowd) > 1 else None,
            )  # fmt: skip
            if point.error is not None:
                axes.errorbar(x, y, point.error, ecolor=INK, elinewidth=0.8, fmt="none", alpha=0.5)


def _bars(axes: Any, bars: Sequence[Bar]) -> None:
    labels = [bar.label for bar in bars]
    for place, bar in enumerate(bars):
        colour, _, _, hatch = look(bar.label, labels)
        axes.bar(place, bar.height, width=0.72, color=colour, hatch=hatch, edgecolor=GRID)
        if bar.error is not None:
            axes.errorbar(
                place, bar.height, yerr=bar.error, ecolor=INK, elinewidth=1.2, capsize=3, fmt="none"
            )
        for value in bar.values:
            axes.plot(place + 0.22, value, marker="o", markersize=3.2, color=INK, linestyle="none")
    low = min(min([bar.height, *bar.values]) for bar in bars)
    high = max(max([bar.height + (bar.error or 0.0), *bar.values]) for bar in bars)
    reach = max(high - low, 1e-9)
    bottom = max(0.0, low - 0.6 * reach)
    axes.set_ylim(bottom, high + 0.08 * reach)
    short = len(labels) <= 4 and max(map(len, labels)) <= 12
    axes.set_xticks(range(len(labels)), labels, rotation=0 if short else 30,
                    ha="center" if short else "right")  # fmt: skip
    if bottom > 0:
        axes.annotate(
            "axis does not start at 0", (1.0, 1.01), xycoords="axes fraction",
            ha="right", va="bottom", fontsize=7, alpha=0.75,
        )  # fmt: skip


def _line(axes: Any, series: Series, labels: Sequence[str], *, stems: bool) -> None:
    colour, marker, dash, _ = look(series.label, labels)
    flat = series.family == "reference"
    marked = series.points and not flat
    axes.plot(
        series.x,
        series.y,
        color=colour,
        marker=marker if marked else None,
        linestyle="none" if stems else "--" if flat else dash,
        markersize=6,
        linewidth=2,
        label=series.label,
    )
    if stems:
        axes.vlines(series.x, 0, series.y, color=colour, linewidth=1.5)
    if series.error is not None and len(series.x) > 1:
        low = [y - e for y, e in zip(series.y, series.error, strict=True)]
        high = [y + e for y, e in zip(series.y, series.error, strict=True)]
        axes.fill_between(series.x, low, high, color=colour, alpha=0.16, linewidth=0)


def inline_svg(panel: Panel, key: str) -> str:
    """Give a panel as SVG for the page: its ids made unique, its colours CSS variables."""
    text = draw([panel], "svg", as_text=True).decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    text = re.sub(r' id="([^"]+)"', lambda m: f' id="{key}-{m[1]}"' if m[1] in used else "", text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{key}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{key}-\1)", text)
    text = re.sub(r"font: (?:bold |)?([\d.]+)px [^;\"]*", lambda m: _font(m), text)
    for number, colour in enumerate(COLOURS):
        text = text.replace(colour, f"var(--c{number})")
    return re.sub(r'<svg [^>]*?viewBox="([^"]+)"[^>]*>', r'<svg viewBox="\1">', text, count=1)


def _font(match: re.Match[str]) -> str:
    weight = "bold " if "bold" in match[0] else ""
    return f"font: {weight}{match[1]}px system-ui, sans-serif"
