"""All statistics: means, t-intervals, differences paired by seed, slopes, quartiles."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    """Mean and sample standard deviation of n values."""

    mean: float
    std: float
    """Divided by n - 1; not a number for n = 1."""
    n: int

    def __str__(self) -> str:
        spread = "" if math.isnan(self.std) else f" ± {self.std:.2f}"
        return f"{self.mean:.2f}{spread} (n={self.n})"


def summarize(values: Sequence[float]) -> Summary:
    """Summarize values; at least one."""
    if not values:
        raise ValueError("values must hold at least one number, got none")
    if not all(map(math.isfinite, values)):  # a run that diverged
        return Summary(math.nan, math.nan, len(values))
    std = statistics.stdev(values) if len(values) > 1 else math.nan
    return Summary(statistics.fmean(values), std, len(values))


@dataclass(frozen=True)
class Interval:
    """A mean with its Student t-interval over n values."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def reach(self) -> float:
        """Half the width."""
        return (self.high - self.low) / 2

    def contains(self, value: float) -> bool:
        """Whether `value` lies inside."""
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}] (n={self.n})"


class Difference(Interval):
    """The mean of paired differences with its interval."""

    @property
    def holds(self) -> bool:
        """Whether the interval excludes 0."""
        return not self.contains(0)

    def __str__(self) -> str:
        return f"{self.mean:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Return mean and interval; with one value the interval is everything."""
    mean, n = statistics.fmean(values), len(values)
    if n < 2:
        return Interval(mean, -math.inf, math.inf, n)
    reach = _t_quantile((1 + level) / 2, n - 1) * statistics.stdev(values) / math.sqrt(n)
    return Interval(mean, mean - reach, mean + reach, n)


def paired_difference(
    first: Mapping[int, float], second: Mapping[int, float], level: float = 0.95
) -> Difference | None:
    """Compare two methods over the seeds that both have: first minus second.

    Runs of one seed share initial weights, order and noise, so their difference is what the
    method changed. `None` where fewer than two seeds are shared.
    """
    seeds = sorted(first.keys() & second.keys())
    if len(seeds) < 2:
        return None
    found = interval([first[seed] - second[seed] for seed in seeds], level)
    return Difference(found.mean, found.low, found.high, found.n)


def p_value(first: Mapping[int, float], second: Mapping[int, float]) -> float | None:
    """Return the two-sided p of the paired t-test; `None` where fewer than two seeds are shared."""
    seeds = sorted(first.keys() & second.keys())
    if len(seeds) < 2:
        return None
    differences = [first[seed] - second[seed] for seed in seeds]
    spread_of_mean = statistics.stdev(differences) / math.sqrt(len(seeds))
    if spread_of_mean == 0:
        return 1.0 if statistics.fmean(differences) == 0 else 0.0
    from scipy.special import stdtr  # `scipy.stats` has the same, and takes a second to import

    return float(2 * stdtr(len(seeds) - 1, -abs(statistics.fmean(differences)) / spread_of_mean))


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for their number, after Holm (1979)."""
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, (len(p_values) - rank) * p_values[index])
        adjusted[index] = min(1.0, largest)
    return adjusted


def detectable(differences: Sequence[float], power: float = 0.8) -> float:
    """Return the true difference that a paired test at 5 % finds with this probability."""
    n = len(differences)
    reach = _t_quantile(0.975, n - 1) + _t_quantile(power, n - 1)
    return reach * statistics.stdev(differences) / math.sqrt(n)


def _t_quantile(probability: float, freedom: int) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, probability))


def log_slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the least-squares slope of log y against log x; not a number for one point."""
    if len(x) < 2:
        return math.nan
    return statistics.linear_regression(list(map(math.log, x)), list(map(math.log, y))).slope


@dataclass(frozen=True)
class Spread:
    """Median and quartiles."""

    median: float
    low: float
    high: float

    def text(self, scale: float = 1.0, digits: int = 2) -> str:
        """The numbers as `median (low to high)`."""
        low, middle, high = (f"{v * scale:.{digits}f}" for v in (self.low, self.median, self.high))
        return f"{middle} ({low} to {high})"

    def as_dict(self) -> dict[str, float]:
        """For JSON."""
        return {"median": self.median, "low": self.low, "high": self.high}


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles of at least one value."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(middle, low, high)


def ratio(first: Sequence[float], second: Sequence[float]) -> Spread:
    """Median and quartiles of the ratios within a round."""
    return spread([a / b for a, b in zip(first, second, strict=True)])
