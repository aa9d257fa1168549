"""The settings that a search may choose from, and the points of it that are tried.

The points come from Optuna's quasi-random sampler (a random point, then a scrambled Halton
sequence, with a seed), so the same space gives the same points, a longer search keeps the points of
a shorter one, and two methods that share settings try the same values of these.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
DRAWS = 20
"""How often, for each point, one that is not there yet is looked for in a small space."""


@dataclass(frozen=True)
class Range:
    """Numbers between two positive bounds, searched by ratios."""

    low: float
    high: float
    whole: bool = False
    """Whole numbers only."""
    least: float = 0.0
    """What the search may not go below, where it reaches past the edge of the range."""
    most: float = math.inf
    """What it may not go above."""

    def __post_init__(self) -> None:
        numbers = [(name, getattr(self, name)) for name in ("low", "high", "least", "most")]
        for name, number in numbers:
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise LabError(f"{name} of a range must be a number, got {number!r}")
        if not 0 < self.low < self.high < math.inf:
            raise LabError(
                f"a range needs 0 < low < high, got {self.low:g} to {self.high:g} "
                "(values with commas between them may be anything)"
            )
        if self.whole and not (self.low == int(self.low) and self.high == int(self.high)):
            raise LabError(
                f"a range of whole numbers needs whole ends, got {self.low:g} to {self.high:g}"
            )

    def rounded(self, value: float) -> float:
        """Return a number with two significant digits, or as many as the range needs.

        >>> Range(0.01, 1.0).rounded(0.1234), Range(0.9, 0.9996, most=0.9996).rounded(0.99957)
        (0.12, 0.9996)
        """
        if self.whole:
            return round(value)
        width = self.high / self.low - 1
        digits = 2 if width >= 0.5 else 2 + math.ceil(-math.log10(width))
        return min(max(float(f"{value:.{digits}g}"), self.least), self.most)

    def around(self, value: float) -> Range:
        """Return half of the range (by ratios) around a value, past an edge that is near."""
        reach = (self.high / self.low) ** REACH
        low, high = max(value / reach, self.least), min(value * reach, self.most)
        if self.whole:
            low, high = max(1, math.floor(low)), math.ceil(high)
        return replace(self, low=low, high=high)

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

    def __post_init__(self) -> None:
        if isinstance(self.options, str) or not isinstance(self.options, Sequence):
            raise LabError(f"a choice needs a tuple of values, got {self.options!r}")
        for option in self.options:
            if not isinstance(option, Setting):
                raise LabError(f"a choice is among numbers, texts and truths, got {option!r}")
        if not self.options:
            raise LabError("a choice needs at least one value, got none")
        object.__setattr__(self, "options", tuple(dict.fromkeys(self.options)))

    def __str__(self) -> str:
        return ", ".join(map(str, self.options))


Space = Mapping[str, Range | Choice]
"""What may be chosen, by the dotted name of the setting, such as `base.lr`."""
Settings = dict[str, Setting]
"""A point of a space."""


def check_space(space: Space) -> None:
    """Refuse what is not a space."""
    if not isinstance(space, Mapping) or not space:
        raise LabError(f"space must name at least one setting, got {space!r}")
    for name, found in space.items():
        if not isinstance(found, Range | Choice):
            raise LabError(f"space: {name} must be a Range or a Choice, got {found!r}")


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
    """Return the points of a search, each once; fewer where the space does not hold as many.

    >>> points({"base.lr": Range(0.01, 1.0)}, 2) == points({"base.lr": Range(0.01, 1.0)}, 3)[:2]
    True
    >>> points({"epochs": Range(2, 3, whole=True)}, 10)
    [{'epochs': 2}, {'epochs': 3}]
    """
    return [dict(point) for point in _points(tuple(space.items()), count, seed)]


@functools.cache
def _points(items: tuple[tuple[str, Range | Choice], ...], count: int, seed: int) -> list[Settings]:
    package, space = optuna(), dict(items)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", package.exceptions.ExperimentalWarning)
        sampler = package.samplers.QMCSampler(qmc_type="halton", scramble=True, seed=seed)
        study = package.create_study(sampler=sampler)
        found: list[Settings] = []
        for _ in range(DRAWS * count):
            asked = study.ask(distributions(space)).params
            point = {name: _rounded(kind, asked[name]) for name, kind in items}
            if point not in found:
                found.append(point)
            if len(found) == count:
                break
    return found


def _rounded(kind: Range | Choice, value: Setting) -> Setting:
    return kind.rounded(float(value)) if isinstance(kind, Range) else value


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Return a space as Optuna writes it."""
    return {name: _distribution(found) for name, found in space.items()}


def _distribution(found: Range | Choice) -> BaseDistribution:
    kinds = optuna().distributions
    made: BaseDistribution
    if isinstance(found, Choice):
        made = kinds.CategoricalDistribution(found.options)
    elif found.whole:
        made = kinds.IntDistribution(int(found.low), int(found.high), log=True)
    else:
        made = kinds.FloatDistribution(found.low, found.high, log=True)
    return made


def around(space: Space, centre: Settings) -> dict[str, Range | Choice]:
    """Return half of a space (by ratios), around a point of it.

    It reaches past the edge where the point lies near one. A choice among values is kept.
    """
    return {
        name: found.around(float(centre[name]))
        if isinstance(found, Range)
        else Choice((centre[name],))
        for name, found in space.items()
    }


def at_edge(space: Space, near: Space, settings: Settings) -> list[str]:
    """Name the settings that lie at the edge of all that was searched, the near part included."""
    found = []
    for name, wide in space.items():
        close = near.get(name, wide)
        if isinstance(wide, Range) and isinstance(close, Range):
            both = replace(wide, low=min(wide.low, close.low), high=max(wide.high, close.high))
            if both.at_edge(float(settings[name])):
                found.append(name)
    return found
