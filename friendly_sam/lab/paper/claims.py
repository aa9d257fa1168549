"""The paper's claims as declared comparisons: data in, verdict out, nothing by hand.

Each claim gives differences paired by seed (runs of one seed share initial weights, order,
subset and wrong labels), oriented so that a positive one speaks for the paper. Their p-values are
corrected for the number of differences of the experiment (Holm). A claim holds where every
difference is significant and speaks for it, does not hold where a significant one speaks against
it, and is undecided otherwise, with fewer than 3 seeds, or where a run of either side is missing:
one that failed is not left out of a mean in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from friendly_sam.lab.paper.results import Measured, Results, Scores
from friendly_sam.lab.statistics import Difference, detectable, holm, p_value, paired_difference

FEWEST_SEEDS = 3
LEVEL = 0.05
Verdict = Literal["holds", "does not hold", "undecided", "not run"]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One paired difference."""

    label: str
    """What is compared, and where."""
    difference: Difference | None
    """`None`: fewer than two seeds."""
    n: int = 0
    """Seeds that both sides have."""
    p: float | None = None
    """Of the paired t-test; after `judge_all`, corrected for their number."""
    power: float | None = None
    """The difference that as many seeds find in four of five cases."""
    missing: int = 0
    """Seeds that a side lacks; its run failed or is not finished."""

    def speaks(self, sign: int) -> bool:
        """Whether it is significant and of this sign, with every run there."""
        enough = self.difference is not None and self.n >= FEWEST_SEEDS and not self.missing
        if not enough or self.p is None or self.p >= LEVEL:
            return False
        assert self.difference is not None
        return sign * self.difference.mean > 0


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """A claim with its verdict."""

    text: str
    verdict: Verdict
    comparisons: tuple[Comparison, ...]
    preferred: Verdict | None = None
    """The same at the epoch that validation prefers, where that is another question."""

    @property
    def n(self) -> int:
        """Return the smallest number of seeds."""
        return min((c.n for c in self.comparisons if c.n), default=0)

    @property
    def tally(self) -> str:
        """Count the differences for and against; empty where there is one at most."""
        if len(self.comparisons) < 2 or not any(c.n >= FEWEST_SEEDS for c in self.comparisons):
            return ""
        speaks_for = sum(c.speaks(1) for c in self.comparisons)
        against = sum(c.speaks(-1) for c in self.comparisons)
        return f"{speaks_for} for, {against} against, of {len(self.comparisons)}"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the paper, and how to compare what was measured."""

    text: str
    compare: Callable[[Results], list[Comparison]]

    def judge(self, results: Results) -> Judgement:
        """Return the verdict, if this were the only claim."""
        return judge_all([self], results)[0]


def judge_all(claims: Sequence[Claim], results: Results) -> list[Judgement]:
    """Return the verdicts on all claims of an experiment, corrected for their number."""
    partial = results.experiment.unsettled
    last = _corrected([_compared_by(claim, results) for claim in claims])
    early = _corrected([_compared_by(claim, results.preferring()) for claim in claims])
    return [
        Judgement(
            text=claim.text,
            verdict=decide(comparisons, partial=partial),
            comparisons=tuple(comparisons),
            preferred=None if comparisons == same else decide(same, partial=partial),
        )
        for claim, comparisons, same in zip(claims, last, early, strict=True)
    ]


def _compared_by(claim: Claim, results: Results) -> list[Comparison]:
    """Return the differences of a claim, each with the number of seeds that it lacks."""
    asked = max((len(cell.cell.runs) for cell in results.cells), default=0)
    return [replace(c, missing=max(0, asked - c.n)) for c in claim.compare(results)]


def _corrected(comparisons: list[list[Comparison]]) -> list[list[Comparison]]:
    """Correct all p-values together."""
    known = [c.p for own in comparisons for c in own if c.p is not None]
    corrected = iter(holm(known))
    return [
        [c if c.p is None else replace(c, p=next(corrected)) for c in own] for own in comparisons
    ]


def decide(comparisons: Sequence[Comparison], *, partial: bool = False) -> Verdict:
    """Turn differences into a verdict; where some are not known yet, none can hold."""
    if not any(c.n for c in comparisons):
        return "not run"
    if any(c.speaks(-1) for c in comparisons):
        return "does not hold"
    return "holds" if not partial and all(c.speaks(1) for c in comparisons) else "undecided"


def show_p(p: float) -> str:
    """Return a p-value with its sign of relation, and as many digits as it deserves."""
    return "< 0.001" if p < 0.001 else f"= {p:.3f}" if p < 0.1 else f"= {p:.2f}"


def _compared(
    label: str, first: Scores | None, second: Scores | None, margin: float = 0.0
) -> Comparison:
    """Compare two sides over the seeds that both have: first + margin - second."""
    first = {seed: value + margin for seed, value in (first or {}).items()}
    second = second or {}
    seeds = sorted(first.keys() & second.keys())
    return Comparison(
        label=label,
        difference=paired_difference(first, second),
        n=len(seeds),
        p=p_value(first, second),
        power=detectable([first[s] - second[s] for s in seeds]) if len(seeds) > 1 else None,
    )


def _scores(cell: Measured | None, metric: str) -> Scores | None:
    return None if cell is None else cell.scores(metric)


def beats(
    first: str,
    second: str,
    *,
    text: str = "",
    metric: str = "test_accuracy",
    lower: bool = False,
    panels: Sequence[str] | None = None,
    margin: float = 0.0,
) -> Claim:
    """Claim that one method is better than another in every panel, each at its chosen x.

    Args:
        first: the better one, they say.
        second: the other.
        text: the claim in words.
        metric: what is compared.
        lower: a lower value is better.
        panels: where (default: everywhere that has both).
        margin: count the first as better even when it is this much worse.
    """

    def compare(results: Results) -> list[Comparison]:
        comparisons = []
        both = {
            p
            for p in results.panels()
            if {first, second} <= {c.cell.method for c in results.cells if c.cell.panel == p}
        }
        for panel in results.panels():
            if panel not in (panels or both):
                continue
            good = _scores(results.chosen(panel, first), metric)
            bad = _scores(results.chosen(panel, second), metric)
            pair = (bad, good) if lower else (good, bad)
            label = f"{panel}: {first} - {second}" if not lower else f"{panel}: {second} - {first}"
            label += f", plus {margin:g}" if margin else ""
            comparisons.append(_compared(label, *pair, margin))
        return comparisons

    return Claim(text=text or f"{first} beats {second}", compare=compare)


def beats_at_each(first: str, second: str, *, text: str, at: float | None = None) -> Claim:
    """Claim that one method is better than another at every x (or at one)."""

    def compare(results: Results) -> list[Comparison]:
        comparisons = []
        for panel in results.panels():
            for x in _asked(results, panel, first):
                if x in _asked(results, panel, second) and (at is None or x == at):
                    good, bad = results.at(panel, first, x), results.at(panel, second, x)
                    pair = _scores(good, "test_accuracy"), _scores(bad, "test_accuracy")
                    point = f"{x:g}{results.experiment.x_unit}"
                    label = f"{panel}, {point}: {first} - {second}"
                    comparisons.append(_compared(label, *pair))
        return comparisons

    return Claim(text=text, compare=compare)


def gain_grows(first: str, second: str, *, text: str) -> Claim:
    """Claim that the lead of one method over another is larger at the largest x than the least."""

    def compare(results: Results) -> list[Comparison]:
        comparisons = []
        for panel in results.panels():
            shared = _shared(results, panel, first, second)
            asked = _asked(results, panel, first)
            if not asked or results.experiment.unsettled:  # the ends are not known yet
                continue
            most: Scores = {}
            least: Scores = {}
            if len(shared) > 1 and (shared[0], shared[-1]) == (asked[0], asked[-1]):
                most = _lead(results, panel, first, second, shared[-1])
                least = _lead(results, panel, first, second, shared[0])
            most_x = f"{asked[-1]:g}{results.experiment.x_unit}"
            label = f"{panel}: lead of {first} at {most_x} minus at {asked[0]:g}"
            comparisons.append(_compared(label, most, least))
        return comparisons

    return Claim(text=text, compare=compare)


def less_sensitive(first: str, second: str, *, text: str) -> Claim:
    """Claim that one method loses less from its chosen x to the largest one than another does."""

    def compare(results: Results) -> list[Comparison]:
        comparisons = []
        for panel in results.panels():
            losses = _loss(results, panel, second), _loss(results, panel, first)
            label = f"{panel}: loss of {second} at the largest radius minus loss of {first}"
            comparisons.append(_compared(label, *losses))
        return comparisons

    return Claim(text=text, compare=compare)


def falls(method: str, *, text: str) -> Claim:
    """Claim that a method is worse at the largest x than at the least."""

    def compare(results: Results) -> list[Comparison]:
        comparisons = []
        for panel in results.panels():
            asked = _asked(results, panel, method)
            if not asked:
                continue
            least = _scores(results.at(panel, method, asked[0]), "test_accuracy")
            largest = _scores(results.at(panel, method, asked[-1]), "test_accuracy")
            label = f"{panel}: {method} at {asked[0]:g} minus at {asked[-1]:g}"
            comparisons.append(_compared(label, least, largest))
        return comparisons

    return Claim(text=text, compare=compare)


def _asked(results: Results, panel: str, method: str) -> list[float]:
    """List the x that a curve should have."""
    cells = [c.cell for c in results.cells if c.cell.panel == panel and c.cell.method == method]
    return sorted(cell.x for cell in cells if cell.x is not None)


def _shared(results: Results, panel: str, first: str, second: str) -> list[float]:
    """List the x at which both methods have runs."""
    found = [{c.cell.x for c in results.sweep(panel, m)} for m in (first, second)]
    return sorted(x for x in found[0] & found[1] if x is not None)


def _lead(results: Results, panel: str, first: str, second: str, x: float) -> Scores:
    a, b = (_scores(results.at(panel, m, x), "test_accuracy") or {} for m in (first, second))
    return {seed: a[seed] - b[seed] for seed in a.keys() & b.keys()}


def _loss(results: Results, panel: str, method: str) -> Scores | None:
    """Return by seed what a method loses from its chosen x to the largest."""
    chosen = results.chosen(panel, method)
    asked = _asked(results, panel, method)
    last = results.at(panel, method, asked[-1]) if asked else None
    if chosen is None or last is None:
        return None
    best, worst = chosen.scores(), last.scores()
    return {seed: best[seed] - worst[seed] for seed in best.keys() & worst.keys()}
