"""One look: a method has the same colour and the same marker in every figure."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from matplotlib.axes import Axes

from friendly_sam.lab.bench.figures import draw_all
from friendly_sam.lab.config.methods import BASES, METHODS
from friendly_sam.lab.plotting.canvas import render
from friendly_sam.lab.plotting.palette import INKS, looks, method_look
from friendly_sam.lab.plotting.panels import (
    Bar,
    Panel,
    Series,
    draw_chart,
    draw_panels,
    inline_svg,
)
from friendly_sam.lab.sharpness.figures import density_figure

LABELS = [*BASES.values(), *(method.label for name, method in METHODS.items() if name != "base")]
PER_FIGURE = [LABELS[i : i + 4] for i in range(0, len(LABELS), 4)]


class Seen:
    """What was drawn, by the label of the method."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.colours: dict[str, set[str]] = defaultdict(set)
        self.markers: dict[str, set[str]] = defaultdict(set)
        for name in ("plot", "bar", "barh"):
            monkeypatch.setattr(Axes, name, self.spy(getattr(Axes, name)))

    def spy(self, original: Any) -> Any:
        def drawn(axes: Axes, *arguments: Any, **options: Any) -> Any:
            label = str(options.get("label", "")).partition(",")[0]
            if label in LABELS:
                self.colours[label].add(options["color"])
                if options.get("marker"):
                    self.markers[label].add(options["marker"])
            return original(axes, *arguments, **options)

        return drawn


def test_a_method_has_one_colour_and_one_marker_in_every_figure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = Seen(monkeypatch)
    for labels in (*PER_FIGURE, LABELS[::-1], LABELS[::3]):
        lines = [Series(label=name, x=[1, 2], y=[3, 4], error=[1, 1]) for name in labels]
        points = [Series(label=f"{name}, 1/8", x=[i], y=[i]) for i, name in enumerate(labels)]
        bars = [Bar(label=name, height=1.0, values=[0.9, 1.1]) for name in labels]
        curve = Panel(title="t", x_label="x", y_label="y", series=lines)
        draw_chart(curve, "svg")
        inline_svg(curve, "key")
        draw_panels([Panel(title="t", y_label="y", bars=bars)], "svg")
        draw_panels([Panel(title="t", y_label="y", series=points, named=True)], "svg")
        spectrum = {"density": {"x": [0, 1], "y": [1, 1], "width": 1.0}, "eigenvalues": [1.0]}
        render(density_figure({name: (name, spectrum) for name in labels}), kind="svg")
    assert seen.colours.keys() == set(LABELS)
    assert {label: len(found) for label, found in seen.colours.items()} == dict.fromkeys(LABELS, 1)
    assert {label: len(found) for label, found in seen.markers.items()} == dict.fromkeys(LABELS, 1)


def test_benchmarks_use_the_same_colours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn: dict[float, str] = {}
    original = Axes.barh

    def spy(axes: Axes, place: float, *arguments: Any, **options: Any) -> Any:
        drawn[place] = options["color"]
        return original(axes, place, *arguments, **options)

    monkeypatch.setattr(Axes, "barh", spy)
    one = {"median": 1.0, "low": 0.9, "high": 1.1}
    rows = {name: {"against SGD": one} for name in ("SGD", "SAM", "F-SAM, every=2", "davda54's")}
    draw_all({"step": {"rows": rows, "batch": 8}}, tmp_path)
    colours = INKS["light"].colours
    names = [method.colour for method in (METHODS["base"], METHODS["sam"], METHODS["fsam"])]
    assert [drawn[place] for place in (3, 2, 1, 0)] == [colours[n] for n in (*names, "black")]


def test_variants_keep_the_look_of_their_method() -> None:
    for label in ("F-SAM", "F-SAM, 1/8", "F-SAM at 0.2", "F-SAM rho=0.1"):
        look = method_look(label)
        assert look is not None
        assert (look.colour, look.marker) == (METHODS["fsam"].colour, METHODS["fsam"].marker)
    assert method_look("something else") is None
    assert len(set(looks(["F-SAM", "F-SAM, 1/8", "F-SAM, 1/16"]))) == 3


def test_both_themes_have_every_colour() -> None:
    light, dark = INKS["light"].all(), INKS["dark"].all()
    assert len(light) == len(dark) == len(set(light)) == len(set(dark))
