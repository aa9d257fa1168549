"""Contenders of a tuned experiment against a rival: paired by seed, corrected for their number."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from friendly_sam.lab.paper.results import Scores
from friendly_sam.lab.paper.tuned_record import Entry
from friendly_sam.lab.statistics import Difference, detectable, holm, p_value, paired_difference

LEVEL = 0.05
Metric = Literal["last", "preferred"]


@dataclass(frozen=True, kw_only=True)
class Against:
    """A contender's lead over the rival."""

    entry: Entry
    difference: Difference
    p: float
    """After Holm's correction for the contenders compared."""

    @property
    def verdict(self) -> str:
        """Say whether it is better or worse."""
        if self.p >= LEVEL:
            return "no significant difference"
        return "better" if self.difference.mean > 0 else "worse"

    def __str__(self) -> str:
        return f"{self.difference}, p {show_p(self.p)}"


def show_p(p: float) -> str:
    """Return a p-value with its sign of relation, and as many digits as it deserves."""
    return "< 0.001" if p < 0.001 else f"= {p:.3f}" if p < 0.1 else f"= {p:.2f}"


def scores(entry: Entry, metric: Metric) -> Scores:
    """Return the test accuracy by seed."""
    return entry.last if metric == "last" else entry.preferred


def compare(entries: Sequence[Entry], rival: Entry, metric: Metric = "last") -> list[Against]:
    """Compare contenders with a rival; those with fewer than two common seeds are left out."""
    found = []
    for entry in entries:
        difference = paired_difference(scores(entry, metric), scores(rival, metric))
        p = p_value(scores(entry, metric), scores(rival, metric))
        if entry is not rival and difference is not None and p is not None:
            found.append((entry, difference, p))
    corrected = holm([p for _, _, p in found])
    return [
        Against(entry=entry, difference=difference, p=p)
        for (entry, difference, _), p in zip(found, corrected, strict=True)
    ]


def power(entries: Sequence[Entry], rival: Entry, metric: Metric = "last") -> float | None:
    """Return the median difference that would have been found in four of five cases."""
    found = []
    for entry in entries:
        ours, theirs = scores(entry, metric), scores(rival, metric)
        seeds = sorted(ours.keys() & theirs.keys())
        if entry is not rival and len(seeds) > 1:
            found.append(detectable([ours[seed] - theirs[seed] for seed in seeds]))
    return statistics.median(found) if found else None
