"""Means and slopes over seeds, with their 95 % intervals, and the verdict on a claim."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Interval:
    """A mean with its 95 % Student t-interval over n values."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def reach(self) -> float:
        """Half the width."""
        return (self.high - self.low) / 2

    def holds(self, value: float) -> bool:
        """Tell whether `value` lies inside."""
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}] (n={self.n})"


def interval(values: Sequence[float]) -> Interval:
    """Give mean and interval; with one value the interval is everything."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean, -math.inf, math.inf, len(values))
    from scipy.stats import t

    error = statistics.stdev(values) / math.sqrt(len(values))
    reach = float(t.ppf(0.975, len(values) - 1)) * error
    return Interval(mean, mean - reach, mean + reach, len(values))


def log_slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Give the least-squares slope of log y against log x."""
    return statistics.linear_regression(list(map(math.log, x)), list(map(math.log, y))).slope
