"""Contenders that take turns in one process, and what their times say.

A machine is never quiet, and its memory can be twice as fast in one minute as in the next. So
every contender runs in every round, in an order that rotates; a time is the median over rounds
with its quartiles, and a ratio is taken within each round and then the median of those.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Clock = Callable[[], float]
T = TypeVar("T")


def clock(threads: int) -> Clock:
    """Processor time for one thread, where nothing else on the machine counts; else wall time."""
    return time.process_time if threads == 1 else time.perf_counter


def take_turns(
    contenders: Mapping[str, Callable[[], T]], *, rounds: int, warm_up: int
) -> dict[str, list[T]]:
    """Run each contender once a round; return what they returned after the warm-up.

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
