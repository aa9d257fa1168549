"""One way to draw: axes in the look of a theme, rendered to the bytes of a file."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from friendly_sam.lab.files import write_atomically
from friendly_sam.lab.plotting.palette import INKS, Ink, Theme

Kind = Literal["png", "svg", "pdf"]

Paint = Callable[[Sequence[Any], Ink], None]
"""Draws on matplotlib axes, with the colours of a theme."""


def render(
    paint: Paint,
    *,
    kind: Kind,
    theme: Theme = "light",
    panels: int = 1,
    columns: int | None = None,
    size: tuple[float, float] = (7.2, 4.4),
    dpi: int = 160,
    inline: bool = False,
) -> bytes:
    """Draw a figure and return its bytes; the same data gives the same bytes.

    Args:
        paint: draws on the axes.
        kind: PNG, SVG or PDF.
        theme: light or dark.
        panels: how many axes there are.
        columns: how many of them stand side by side (default: all).
        size: width and height in inches.
        dpi: pixels per inch.
        inline: for an SVG inside of a page: letters as text, no background.
    """
    # Where its folder of settings cannot be written, it would say so at length on stderr.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    ink = INKS[theme]
    style: dict[Any, Any] = {
        "font.size": 11,
        "font.family": "sans-serif",
        "svg.fonttype": "none" if inline else "path",
        "svg.hashsalt": "friendly-sam",
        "text.color": ink.text,
        "axes.labelcolor": ink.text,
        "axes.edgecolor": ink.text,
        "xtick.color": ink.text,
        "ytick.color": ink.text,
        "hatch.linewidth": 0.6,
    }
    across = columns or panels
    with matplotlib.rc_context(style):
        figure = Figure(figsize=size, dpi=dpi, layout="constrained")
        figure.set_facecolor("none" if inline else ink.ground)
        drawn = []
        for number in range(panels):
            axes = figure.add_subplot(-(-panels // across), across, number + 1)
            axes.set_facecolor("none" if inline else ink.ground)
            axes.grid(color=ink.grid, linewidth=0.7)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
            drawn.append(axes)
        paint(drawn, ink)
        _names_are_plain(figure)
        buffer = io.BytesIO()
        # Without a date two figures of the same data are the same file.
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from font")
            figure.savefig(buffer, format=kind, metadata=metadata)
    return buffer.getvalue()


def _names_are_plain(figure: Any) -> None:
    """Draw all words as they are: a `$` in the name of a run is no formula, 10² on a scale is."""
    from matplotlib.text import Text
    from matplotlib.ticker import LogFormatter

    formulas: set[Any] = set()
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        ticks = axis.get_ticklabels(which="both")
        if isinstance(axis.get_major_formatter(), LogFormatter):
            formulas.update(ticks)
    for text in figure.findobj(Text):
        text.set_parse_math(text in formulas)


def write_figure(paint: Paint, path: Path, kinds: Sequence[Kind], **options: Any) -> list[Path]:
    """Write a figure beside `path` in several formats; return their paths."""
    paths = [path.with_suffix(f".{kind}") for kind in kinds]
    for kind, target in zip(kinds, paths, strict=True):
        write_atomically(target, render(paint, kind=kind, **options))
    return paths


def title(axes: Any, words: str) -> None:
    """Put a title above a panel."""
    axes.set_title(words, loc="left", fontweight="bold", fontsize=12)


def legend(axes: Any, **options: Any) -> None:
    """Add a legend without a frame."""
    axes.legend(**{"frameon": False, "fontsize": 10, **options})


def legend_columns(labels: Sequence[str], width: float = 6.0) -> int:
    """Return how many labels stand side by side in a legend of so many inches."""
    longest = max(map(len, labels), default=0)
    return max(1, min(len(labels), int(width / (0.085 * longest + 0.65))))


def legend_below(axes: Any, labels: Sequence[str], width: float = 6.0) -> None:
    """Add a legend of what was drawn, in the order of these labels, below all panels."""
    handles = {
        label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    axes.figure.legend(
        [handles[label] for label in labels],
        labels,
        loc="outside lower center",
        ncols=legend_columns(labels, width),
        frameon=False,
        fontsize=9,
        handlelength=2.8,
    )


def log_ticks(axes: Any, values: Sequence[float]) -> None:
    """Spread x out by ratios, with a tick at each value."""
    places = sorted(set(values))
    axes.set_xscale("log", base=2)
    axes.set_xticks(places, [f"{value:g}" for value in places])
    axes.minorticks_off()


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure that is drawn by hand, for what is not a plain panel."""

    name: str
    alt: str
    """What it shows, for those who cannot see it."""
    paint: Paint
    panels: int = 1
    columns: int | None = None
    """How many panels stand side by side (default: all)."""
    size: tuple[float, float] = (6.0, 3.7)
    narrow: tuple[float, float] | None = None
    """Its size with the panels one below the other, for a phone (default: it stays as it is)."""

    def draw(self, kind: Kind, theme: Theme = "light", *, narrow: bool = False) -> bytes:
        """Return its bytes."""
        stacked = narrow and self.narrow is not None
        return render(
            self.paint, kind=kind, theme=theme, panels=self.panels,
            columns=1 if stacked else self.columns,
            size=self.narrow if stacked and self.narrow else self.size,
        )  # fmt: skip
