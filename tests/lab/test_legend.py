"""Words around a picture: a legend names what was drawn, a title breaks at words."""

from __future__ import annotations

from typing import Any

from matplotlib.colors import to_hex

from friendly_sam.lab.plotting.canvas import legend_below, render
from friendly_sam.lab.plotting.palette import Ink
from friendly_sam.lab.plotting.panels import Panel, Series, inline_svg


def test_a_legend_gives_each_label_its_own_mark() -> None:
    seen = {}

    def paint(panels: Any, ink: Ink) -> None:
        axes = panels[0]
        axes.errorbar([0], [1], yerr=[1], color="#ff0000", label="drawn first, with errors")
        axes.plot([0, 1], [0, 1], color="#00ff00", label="drawn second")
        legend_below(axes, ["drawn second", "drawn first, with errors"])
        (legend,) = axes.figure.legends
        for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True):
            colour = handle.get_color()  # of a collection of error bars: one for each
            seen[text.get_text()] = to_hex(colour if isinstance(colour, str) else colour[0])

    render(paint, kind="svg")
    assert seen == {"drawn second": "#00ff00", "drawn first, with errors": "#ff0000"}


def test_a_number_and_its_per_cent_sign_stay_on_one_line() -> None:
    title = "CIFAR-10, 5,000 images, ResNet-8, 40 % random labels"
    panel = Panel(title=title, y_label="y", series=[Series(label="SAM", x=[1], y=[2])])
    drawn = inline_svg(panel, "key")
    assert ">40\N{NO-BREAK SPACE}% random labels<" in drawn
