"""The settings that a search may choose from, and the points of it that are tried.

The points come from Optuna's quasi-random sampler (a random point, then a scrambled Halton
sequence, with a seed), so the same space gives the same points, a longer search keeps the points of
a shorter one, and two methods that share settings try the same values of these.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from friendly_sam._machinery.install import how_to_install
from friendly_sam.lab.config.settings import Setting
from friendly_sam.lab.errors import LabError

if TYPE_CHECKING:
    import types

    from optuna.distributions import BaseDistribution

REACH = 0.25
"""How far `around` reaches to either side, as a share of a range (by ratios)."""
EDGE = 0.1
"""Share of a range (by ratios) that counts as its edge."""


@dataclass(frozen=True)
class Range:
    """Numbers between two positive bounds, searched by ratios."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 < self.low < self.high:
            raise LabError(f"a range needs 0 < low < high, got {self.low:g} to {self.high:g}")

    def at_edge(self, value: float) -> bool:
        """Whether a value lies in the outer tenth on either side, or outside."""
        reach = (self.high / self.low) ** EDGE
        return not self.low * reach <= value <= self.high / reach

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Choice:
    """One of some values."""

    options: tuple[Setting, ...]

    def __str__(self) -> str:
        return ", ".join(map(str, self.options))


Space = Mapping[str, Range | Choice]
"""What may be chosen, by the dotted name of the setting, such as `base.lr`."""
Settings = dict[str, Setting]
"""A point of a space."""


def optuna() -> types.ModuleType:
    """Return Optuna, silent about its ordinary doings."""
    try:
        import optuna
    except ImportError as error:
        message = "optuna is not installed, and a search needs the extra tune"
        raise LabError(f"{message}: {how_to_install('tune')}") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def points(space: Space, count: int, seed: int = 0) -> list[Settings]:
    """Return the points of a search, numbers with two significant digits.

    >>> points({"base.lr": Range(0.01, 1.0)}, 2) == points({"base.lr": Range(0.01, 1.0)}, 3)[:2]
    True
    """
    return [dict(point) for point in _points(tuple(space.items()), count, seed)]


@functools.cache
def _points(items: tuple[tuple[str, Range | Choice], ...], count: int, seed: int) -> list[Settings]:
    package, space = optuna(), dict(items)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", package.exceptions.ExperimentalWarning)
        sampler = package.samplers.QMCSampler(qmc_type="halton", scramble=True, seed=seed)
        study = package.create_study(sampler=sampler)
        asked = [study.ask(distributions(space)).params for _ in range(count)]
    return [{name: rounded(point[name]) for name in space} for point in asked]


def rounded(value: Setting) -> Setting:
    """Return a number with two significant digits, anything else as it is."""
    return float(f"{value:.2g}") if isinstance(value, float) else value


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Return a space as Optuna writes it."""
    kinds = optuna().distributions
    return {
        name: kinds.FloatDistribution(found.low, found.high, log=True)
        if isinstance(found, Range)
        else kinds.CategoricalDistribution(found.options)
        for name, found in space.items()
    }


def around(space: Space, centre: Settings) -> dict[str, Range | Choice]:
    """Return half of a space (by ratios), around a point of it.

    It reaches past the edge where the point lies near one. A choice among values is kept.
    """
    near: dict[str, Range | Choice] = {}
    for name, found in space.items():
        value = centre[name]
        if isinstance(found, Range):
            reach = (found.high / found.low) ** REACH
            near[name] = Range(float(value) / reach, float(value) * reach)
        else:
            near[name] = Choice((value,))
    return near


def at_edge(space: Space, near: Space, settings: Settings) -> list[str]:
    """Name the settings that lie at the edge of all that was searched, the near part included."""
    found = []
    for name, wide in space.items():
        close = near.get(name, wide)
        if isinstance(wide, Range) and isinstance(close, Range):
            whole = Range(min(wide.low, close.low), max(wide.high, close.high))
            if whole.at_edge(float(settings[name])):
                found.append(name)
    return found
