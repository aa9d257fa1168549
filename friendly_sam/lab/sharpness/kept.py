"""What the files of a measured run must hold: they may come from anybody."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from friendly_sam.lab.errors import LabError
from friendly_sam.lab.reading import checked, read_json_object

MOST_POINTS = 100_000
_CURVE = {"x": [float], "losses": [float]}
_DENSITY = {"x": [float], "y": [float]}
SPECTRUM: dict[str, Any] = {
    "eigenvalues": [float],
    "lambda1": float,
    "ratio": float,
    "trace": float,
    "trace_standard_error": float,
    "density": _DENSITY,
    "images": int,
    "weights": int,
    "loss": float,
}
"""Of `sharpness.json`."""
LANDSCAPE: dict[str, Any] = {
    "rises": dict,
    "worst": float,
    "random": _CURVE,
    "ascent": _CURVE,
    "plane": {"x": [float], "y": [float], "losses": [[float]]},
}
"""Of `landscape.json`."""


def read_spectrum(path: Path) -> dict[str, Any]:
    """Read `sharpness.json`: its largest eigenvalue, the ratio and the density, if it has them."""
    values = read_json_object(path)
    wanted = {"lambda1": float, "ratio": float, "density": _DENSITY}
    checked(values, {name: wanted[name] for name in wanted if name in values}, str(path))
    if "density" in values:
        check_density(values["density"], str(path))
    return values


def read_density(path: Path) -> Mapping[str, Any]:
    """Read the density of `sharpness.json`."""
    values = read_spectrum(path)
    if "density" not in values:
        raise LabError(f"{path} is damaged: density is missing")
    density: Mapping[str, Any] = values["density"]
    return density


def check_density(density: Mapping[str, Any], source: str) -> None:
    """Refuse a density that cannot be drawn: x must rise evenly, y go with it, width be in it."""
    x, y, width = density["x"], density["y"], density.get("width") or 0.0
    good = (
        isinstance(width, (int, float))
        and 2 <= len(x) == len(y) <= MOST_POINTS
        and all(map(math.isfinite, (*x, *y, width)))
        and x[0] < x[1]
        and 0 <= width <= x[-1] - x[0] <= 2 * len(x) * (x[1] - x[0])
    )
    if not good:
        raise LabError(f"{source} is damaged: its density cannot be drawn")
