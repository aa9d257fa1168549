"""Contenders against the base optimizer: paired by seed, corrected for the number of a table."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from friendly_sam.lab.paper.claims import FEWEST_SEEDS, LEVEL, show_p
from friendly_sam.lab.paper.results import Scores
from friendly_sam.lab.paper.tuned_record import Entry
from friendly_sam.lab.statistics import Difference, detectable, holm, p_value, paired_difference

Metric = Literal["last", "preferred"]
MISSING, FEW = "runs are missing", "too few seeds"
Pair = tuple[Entry, Entry]
"""A contender and its rival."""


@dataclass(frozen=True, kw_only=True)
class Against:
    """A contender's lead over the rival."""

    entry: Entry
    rival: Entry
    difference: Difference
    p: float
    """After Holm's correction for the pairs compared."""

    @property
    def verdict(self) -> str:
        """Say whether it is better or worse; a failed run is not left out of a mean in silence."""
        if self.entry.missing or self.rival.missing:
            return MISSING
        if self.difference.n < FEWEST_SEEDS:
            return FEW
        if self.p >= LEVEL:
            return "no significant difference"
        return "better" if self.difference.mean > 0 else "worse"

    def __str__(self) -> str:
        return f"{self.difference}, p {show_p(self.p)}"


def scores(entry: Entry, metric: Metric) -> Scores:
    """Return the test accuracy by seed."""
    return entry.last if metric == "last" else entry.preferred


def compare(pairs: Iterable[Pair], metric: Metric = "last") -> list[Against]:
    """Compare contenders with rivals; pairs with fewer than two common seeds are left out."""
    found = []
    for entry, rival in pairs:
        difference = paired_difference(scores(entry, metric), scores(rival, metric))
        p = p_value(scores(entry, metric), scores(rival, metric))
        if entry is not rival and difference is not None and p is not None:
            found.append((entry, rival, difference, p))
    corrected = holm([p for *_, p in found])
    return [
        Against(entry=entry, rival=rival, difference=difference, p=p)
        for (entry, rival, difference, _), p in zip(found, corrected, strict=True)
    ]


def power(pairs: Sequence[Pair], metric: Metric = "last") -> float | None:
    """Return the median difference that would have been found in four of five cases."""
    found = []
    for entry, rival in pairs:
        ours, theirs = scores(entry, metric), scores(rival, metric)
        seeds = sorted(ours.keys() & theirs.keys())
        if entry is not rival and len(seeds) > 1:
            found.append(detectable([ours[seed] - theirs[seed] for seed in seeds]))
    return statistics.median(found) if found else None
