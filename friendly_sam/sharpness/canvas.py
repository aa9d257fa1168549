"""One look for the pictures of this package: light and dark, safe for colour-blind readers."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from friendly_sam._machinery.install import how_to_install

Theme = Literal["light", "dark"]
Kind = Literal["png", "svg", "pdf"]


@dataclass(frozen=True)
class Ink:
    """The colours of a theme; the lines' are those of Okabe and Ito (2008)."""

    text: str
    grid: str
    ground: str
    lines: tuple[str, ...]
    bound: str
    """For what is not a measurement."""


INKS = {
    "light": Ink(
        "#1b1f24", "#d0d7de", "#ffffff",
        ("#5f6b76", "#d55e00", "#0072b2", "#009e73", "#e69f00", "#cc79a7", "#56b4e9"), "#5f6b76",
    ),
    "dark": Ink(
        "#e6edf3", "#3d444d", "#0d1117",
        ("#a3adb8", "#ff8a3d", "#4db2ec", "#2fd1a5", "#f2b93b", "#e39cc4", "#8fd3f7"), "#a3adb8",
    ),
}  # fmt: skip
MARKERS = ("D", "s", "o", "^", "v", "P", "X")

Paint = Callable[[Sequence[Any], Ink], None]
"""Draws on matplotlib axes, with the inks of a theme."""


def matplotlib_figure() -> Any:
    """Give matplotlib's Figure class, or say how to get it."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError(f"pictures need matplotlib: {how_to_install('sharpness')}") from error
    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    return Figure


def render(
    paint: Paint,
    *,
    kind: Kind,
    theme: Theme = "light",
    columns: int = 1,
    size: tuple[float, float] = (7.2, 4.4),
) -> bytes:
    """Draw a picture of `columns` panels side by side and give its bytes."""
    figure_class = matplotlib_figure()
    import matplotlib

    ink = INKS[theme]
    style: dict[Any, Any] = {
        "font.size": 11,
        "font.family": "sans-serif",
        "svg.fonttype": "path",
        "svg.hashsalt": "friendly-sam",
        "text.color": ink.text,
        "axes.labelcolor": ink.text,
        "axes.edgecolor": ink.text,
        "xtick.color": ink.text,
        "ytick.color": ink.text,
    }
    with matplotlib.rc_context(style):
        figure = figure_class(figsize=size, dpi=160, facecolor=ink.ground, layout="constrained")
        panels = figure.subplots(1, columns, squeeze=False)[0]
        for axes in panels:
            axes.set_facecolor(ink.ground)
            axes.grid(color=ink.grid, linewidth=0.7)
            axes.set_axisbelow(True)
            axes.spines[["top", "right"]].set_visible(False)
        paint(list(panels), ink)
        buffer = io.BytesIO()
        # Without a date two pictures of the same data are the same file.
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
        figure.savefig(buffer, format=kind, facecolor=ink.ground, metadata=metadata)
    return buffer.getvalue()


def title(axes: Any, words: str) -> None:
    """Put a title above a panel."""
    axes.set_title(words, loc="left", fontweight="bold", fontsize=12)


def legend(axes: Any, **options: Any) -> None:
    """Add a legend without a frame."""
    axes.legend(**{"frameon": False, "fontsize": 10, **options})
