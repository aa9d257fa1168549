"""Lemma 1: the direction g - σ m is orthogonal to the full gradient in expectation at σ = 1.

    E <g - σ m, ∇L> = (1 - σ) ||∇L||²        if m is an unbiased estimate of ∇L

That m is unbiased holds at fixed weights (learning rate 0) with `variant="debiased"`; there the
lemma is tested. Along a run m lags behind: it remembers gradients of earlier weights. What becomes
of the inner product then is measured too, for algorithm 1 as it is printed and for the debiased
average.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from friendly_sam.lab.counting import counted
from friendly_sam.lab.paper.theory.problem import Problem, friendly_run
from friendly_sam.lab.statistics import interval

DECAY = 0.9
RHO = 0.05
RUN_LR = 0.02
SIGMAS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
START = 20
"""The steps that count as the start of a run, twice what the average remembers."""
PRECISION = 0.05
"""Half-widths, relative to ||∇L||², above which the data does not decide."""


def measure(
    steps: int, run_steps: int, seeds: int, progress: Callable[[str], None]
) -> dict[str, Any]:
    """Measure <g, ∇L> and <m, ∇L> in units of ||∇L||², at fixed weights and along a run."""
    problem = Problem()
    full = problem.gradient(problem.start())
    unit = float(full.square().sum())
    progress(f"lemma 1: {counted(steps, 'step')} at fixed weights, {counted(seeds, 'seed')}")
    along_gradient, along_average = [], []
    for seed in range(seeds):
        run = friendly_run(
            problem, steps=steps, lr=0.0, seed=seed, rho=RHO, decay=DECAY, variant="debiased"
        )
        seen = list(run)[1:]  # on the first step the perturbation is along g itself
        along_gradient.append(sum(float(s.gradient @ full) for s in seen) / len(seen) / unit)
        along_average.append(sum(float(s.average @ full) for s in seen) / len(seen) / unit)
    progress(f"lemma 1: along runs of {counted(run_steps, 'step')}, {counted(seeds, 'seed')}")
    data: dict[str, Any] = {
        "gradient": along_gradient,
        "average": along_average,
        "sigmas": SIGMAS,
        "decay": DECAY,
        "lr": RUN_LR,
    }
    for variant in ("paper", "debiased"):
        products: list[list[float]] = []
        norms: list[list[float]] = []
        for seed in range(seeds):
            run = friendly_run(
                problem,
                steps=run_steps,
                lr=RUN_LR,
                seed=1000 + seed,
                rho=RHO,
                decay=DECAY,
                variant=variant,
            )
            seen = list(run)
            products.append([float((s.gradient - s.average) @ s.full) for s in seen])
            norms.append([float(s.full.square().sum()) for s in seen])
        mean_norms = _mean(norms)
        peak = mean_norms.index(max(mean_norms))
        data[variant] = {
            "products": _mean(products),
            "norms": mean_norms,
            "peak": peak + 1,
            "start": _shares(products, norms, slice(1, START)),
            "falling": _shares(products, norms, slice(peak, None)),
        }
    return data


def at_sigma(data: dict[str, Any], sigma: float) -> list[float]:
    """<g - σ m, ∇L> / ||∇L||², a value for each seed."""
    pairs = zip(data["gradient"], data["average"], strict=True)
    return [gradient - sigma * average for gradient, average in pairs]


def claims(data: dict[str, Any]) -> list[dict[str, str]]:
    """Judge the lemma at fixed weights, and tell what happens along a run."""
    found = []
    vanishing = interval(at_sigma(data, 1.0))
    found.append(
        {
            "text": "Lemma 1: at σ = 1 the direction is orthogonal to the full gradient in "
            "expectation (fixed weights, debiased average)",
            "verdict": _verdict(vanishing.contains(0), vanishing.reach, vanishing.n),
            "detail": f"<g - m, ∇L> / ||∇L||² = {vanishing}",
        }
    )
    slope = interval(data["average"])
    found.append(
        {
            "text": "Lemma 1: the inner product follows (1 - σ)||∇L||²",
            "verdict": _verdict(slope.contains(1), slope.reach, slope.n),
            "detail": "it is a straight line in σ that falls by <m, ∇L> / ||∇L||² = "
            f"{slope} for each unit of σ; the lemma says 1",
        }
    )
    start = interval(data["paper"]["start"])
    found.append(
        {
            "text": f"Lemma 1 along a run, steps 2 to {START}, algorithm 1 as printed: the inner "
            "product at σ = 1 still vanishes",
            "verdict": _verdict(start.contains(0), start.reach, start.n),
            "detail": f"Σ<g - m, ∇L> / Σ||∇L||² = {start}: m starts at 0 and is too small at "
            "first, so part of the full gradient stays in the direction",
        }
    )
    falling = interval(data["debiased"]["falling"])
    found.append(
        {
            "text": "Lemma 1 along a run, while the gradient falls, debiased average: the inner "
            "product at σ = 1 still vanishes",
            "verdict": _verdict(falling.contains(0), falling.reach, falling.n),
            "detail": f"Σ<g - m, ∇L> / Σ||∇L||² = {falling}: m remembers the larger gradients of "
            f"earlier weights (learning rate {data['lr']:g}, decay {data['decay']:g}, from step "
            f"{data['debiased']['peak']} on)",
        }
    )
    return found


def table(data: dict[str, Any]) -> dict[str, Any]:
    """Return the inner product for each σ."""
    rows = []
    for sigma in data["sigmas"]:
        found = interval(at_sigma(data, sigma))
        rows.append([f"{sigma:g}", str(found), f"{1 - sigma:g}"])
    return {
        "title": "Lemma 1: <g - σ m, ∇L> / ||∇L||² at fixed weights",
        "columns": ["σ", "measured", "1 - σ"],
        "rows": rows,
    }


def _verdict(inside: bool, reach: float, n: int) -> str:
    if not inside:
        return "does not hold"
    return "holds" if reach <= PRECISION else f"undecided at {n}"


def _shares(
    products: Sequence[Sequence[float]], norms: Sequence[Sequence[float]], phase: slice
) -> list[float]:
    pairs = zip(products, norms, strict=True)
    return [sum(product[phase]) / sum(norm[phase]) for product, norm in pairs]


def _mean(rows: Sequence[Sequence[float]]) -> list[float]:
    return [sum(column) / len(column) for column in zip(*rows, strict=True)]
