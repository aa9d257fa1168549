"""Spectral densities that can be compared: brought to one width.

A density is a sum of Gaussians, as wide as 1 % of the spectrum it belongs to. Of two spectra the
wider one is smeared more, so beside each other both get the larger width.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

Curve = tuple[list[float], list[float]]


def at_one_width(densities: Sequence[Mapping[str, Any]]) -> list[Curve]:
    """Return x and y of each density at the largest of their widths."""
    common = max(map(_width, densities), default=0.0)
    return [_broadened(density, common) for density in densities]


def _width(density: Mapping[str, Any]) -> float:
    # Older files do not say: theirs is 1 % of the range of the nodes, 6 widths from either end.
    x = density["x"]
    return float(density.get("width") or (x[-1] - x[0]) / 112)


def _broadened(density: Mapping[str, Any], width: float) -> Curve:
    """Bring a density to a larger width, by one more Gaussian: widths add in squares."""
    x, y = (torch.tensor(density[axis], dtype=torch.float64) for axis in "xy")
    step = float(x[1] - x[0])
    extra = math.sqrt(max(width**2 - _width(density) ** 2, 0.0))
    if extra < step:
        return x.tolist(), y.tolist()
    margin = math.ceil(6 * extra / step)
    places = x[0] + step * torch.arange(-margin, len(x) + margin)
    kernel = torch.exp(-0.5 * ((places[:, None] - x[None, :]) / extra) ** 2)
    return places.tolist(), (kernel @ y * step / (extra * math.sqrt(2 * math.pi))).tolist()
