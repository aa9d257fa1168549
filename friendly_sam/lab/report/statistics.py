"""Means, spreads, and comparisons that are paired by seed."""

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
    std = statistics.stdev(values) if len(values) > 1 else math.nan
    return Summary(statistics.fmean(values), std, len(values))


@dataclass(frozen=True)
class Difference:
    """Mean of paired differences with its 95 % interval."""

    mean: float
    low: float
    high: float
    n: int

    @property
    def holds(self) -> bool:
        """Tell whether the interval excludes 0."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        return f"{self.mean:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def paired_difference(
    first: Mapping[int, float], second: Mapping[int, float], level: float = 0.95
) -> Difference | None:
    """Compare two methods over the seeds that both have: first minus second.

    Runs of one seed share initial weights, order and noise, so their difference is what the
    method changed; the interval is Student's t over those differences. `None` where fewer
    than two seeds are shared.
    """
    seeds = sorted(first.keys() & second.keys())
    if len(seeds) < 2:
        return None
    differences = [first[seed] - second[seed] for seed in seeds]
    mean, error = statistics.fmean(differences), statistics.stdev(differences)
    from scipy.stats import t

    reach = float(t.ppf((1 + level) / 2, len(seeds) - 1)) * error / math.sqrt(len(seeds))
    return Difference(mean, mean - reach, mean + reach, len(seeds))
