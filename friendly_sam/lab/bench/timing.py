"""Contenders that take turns in one process, and what their times say.

A machine is never quiet, and its memory can be twice as fast in one minute as in the next. So
every contender runs in every round, in an order that rotates; a time is the median over rounds
with its quartiles, and a ratio is taken within each round and then the median of those.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

Clock = Callable[[], float]
T = TypeVar("T")


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


def clock(threads: int) -> Clock:
    """Processor time for one thread, where nothing else on the machine counts; else wall time."""
    return time.process_time if threads == 1 else time.perf_counter


def take_turns(
    contenders: Mapping[str, Callable[[], T]], *, rounds: int, warm_up: int
) -> dict[str, list[T]]:
    """Run each contender once a round; give what they returned after the warm-up.

    Args:
        contenders: what runs and returns its time, by name.
        rounds: how many times are kept.
        warm_up: how many rounds are not.
    """
    names = list(contenders)
    kept: dict[str, list[T]] = {name: [] for name in names}
    for turn in range(warm_up + rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            value = contenders[name]()
            if turn >= warm_up:
                kept[name].append(value)
    return kept


def timed(run: Callable[[], Any], now: Clock) -> Callable[[], float]:
    """A contender that returns the time of `run`."""

    def contender() -> float:
        start = now()
        run()
        return now() - start

    return contender
