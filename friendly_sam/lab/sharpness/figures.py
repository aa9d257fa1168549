"""The two figures of `fsam sharpness` that are not plain panels: spectra and landscapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from friendly_sam.lab.plotting.canvas import Paint, legend_below
from friendly_sam.lab.plotting.palette import Ink, dashed, looks
from friendly_sam.lab.sharpness.densities import at_one_width

LEVELS = 15


def density_figure(spectra: Mapping[str, tuple[str, Mapping[str, Any]]]) -> Paint:
    """Draw spectral densities on a logarithmic axis; `spectra` has family and `measure` by name."""
    densities = [found["density"] for _, found in spectra.values()]
    curves = dict(zip(spectra, at_one_width(densities), strict=True))

    def paint(panels: Sequence[Any], ink: Ink) -> None:
        axes = panels[0]
        chosen = dashed(looks([family for family, _ in spectra.values()]))
        for index, (name, (_, found)) in enumerate(spectra.items()):
            look = chosen[index]
            colour = ink.colours[look.colour]
            x, y = curves[name]
            axes.plot(
                x, [max(value, 1e-12) for value in y],
                color=colour, linestyle=look.dash, alpha=look.strength, label=name,
            )  # fmt: skip
            for value in found["eigenvalues"]:
                axes.plot([value], [1.4e-6 * 1.7**index], marker="|", markersize=9, color=colour)
        top = max(max(y) for _, y in curves.values())
        axes.set(yscale="log", ylim=(1e-6, 3 * top), xlabel="eigenvalue of the Hessian")
        axes.set_ylabel("density (ticks: the largest)")
        legend_below(axes, list(spectra))

    return paint


def landscape_size(planes: int, columns: int = 2) -> tuple[float, float]:
    """Return the inches of a figure of planes, so many side by side."""
    return (4.0 if min(planes, columns) == 1 else 6.4), 2.7 * math.ceil(planes / columns)


def landscape_figure(landscapes: Mapping[str, Mapping[str, Any]]) -> Paint:
    """Draw planes in a grid, each with levels of its own: one scale for all would hide some."""

    def paint(panels: Sequence[Any], ink: Ink) -> None:
        for axes, (name, found) in zip(panels, landscapes.items(), strict=True):
            _plane(axes, found["plane"], ink)
            axes.set_title(name.replace(" (", "\n("), loc="left", fontsize=9.5, fontweight="bold")

    return paint


def _plane(axes: Any, plane: Mapping[str, Any], ink: Ink) -> None:
    start, levels = _levels([loss for row in plane["losses"] for loss in row])
    losses = [[max(v, start) if math.isfinite(v) else 1e9 for v in row] for row in plane["losses"]]
    filled = axes.contourf(
        plane["x"], plane["y"], [[math.log10(v) for v in row] for row in losses],
        levels=[math.log10(level) for level in levels], cmap="viridis", extend="max",
    )  # fmt: skip
    lines = axes.contour(
        plane["x"], plane["y"], losses, levels=levels[1::4], colors="white", linewidths=0.8
    )
    axes.clabel(lines, fmt="%.3g", fontsize=7)
    axes.plot([0], [0], marker="+", markersize=9, color=ink.colours["vermilion"], markeredgewidth=2)
    axes.grid(visible=False)
    axes.set_aspect("equal")
    axes.set_xlabel("first direction", fontsize=8.5)
    axes.set_ylabel("second direction", fontsize=8.5)
    axes.tick_params(labelsize=8)
    bar = axes.figure.colorbar(filled, ax=axes, shrink=0.85)
    ticks = {math.log10(level): f"{level:.3g}" for level in levels[::5]}
    bar.set_ticks(list(ticks), labels=list(ticks.values()))
    bar.ax.tick_params(labelsize=8)
    bar.set_label("training loss", fontsize=8.5)


def _levels(values: Sequence[float]) -> tuple[float, list[float]]:
    """Return the lowest loss and levels above it.

    They rise by ratios: the bottom of the valley would else be one flat colour. Above a thousand
    times the lowest loss there is nothing to see.
    """
    finite = [value for value in values if math.isfinite(value) and value > 0] or [1.0]
    start = max(min(finite), 1e-4)
    top = max(min(max(finite), 1000 * start), 1.001 * start)
    return start, [start * (top / start) ** (k / LEVELS) for k in range(LEVELS + 1)]
