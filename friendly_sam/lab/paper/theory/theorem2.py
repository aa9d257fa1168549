"""Theorem 2: with γ = γ_0/√T and ρ_t = ρ_0/√t, F-SAM converges as log T/√T.

    (1/T) Σ_t E||∇L(w_t)||² <= 2Δ/(γ_0 √T) + (2βM γ_0 + ρ_0² β³ γ_0)/√T + ρ_0² β² s/√T

with s = log T as printed. The proof (appendix A3) has Σ_{t<=T} 1/t there, which is at most
1 + log T and above log T: with s = 1 + log T the bound is the corrected one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from friendly_sam.lab.counting import counted
from friendly_sam.lab.paper.theory.problem import Problem, friendly_run
from friendly_sam.lab.statistics import interval, log_slope

GAMMA0 = 1.0
RHO0 = 0.5


def convergence_bound(problem: Problem, steps: int, harmonic: float) -> float:
    """The right-hand side; `harmonic` is what stands for Σ 1/t."""
    beta, radius = problem.beta, RHO0**2
    return (
        2 * problem.gap / GAMMA0
        + 2 * beta * problem.variance * GAMMA0
        + radius * beta**3 * GAMMA0
        + radius * beta**2 * harmonic
    ) / math.sqrt(steps)


def measure(horizons: Sequence[int], seeds: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """Measure the average squared gradient norm for each T and seed."""
    problem = Problem()
    rows: list[dict[str, Any]] = []
    for steps in horizons:
        lr = GAMMA0 / math.sqrt(steps)
        if lr > 1 / problem.beta:
            raise ValueError(f"horizons must give γ <= 1/β, but {steps} gives {lr:.3g}")
        progress(f"theorem 2: {counted(steps, 'step')}, {counted(seeds, 'seed')}")
        averages = []
        for seed in range(seeds):
            run = friendly_run(problem, steps=steps, lr=lr, seed=seed, rho=RHO0, inverse_sqrt=True)
            averages.append(sum(float(step.full.square().sum()) for step in run) / steps)
        rows.append(
            {
                "steps": steps,
                "averages": averages,
                "printed": convergence_bound(problem, steps, math.log(steps)),
                "corrected": convergence_bound(problem, steps, 1 + math.log(steps)),
            }
        )
    slopes = [log_slope(horizons, [row["averages"][seed] for row in rows]) for seed in range(seeds)]
    return {"rows": rows, "slopes": slopes}


def claims(data: dict[str, Any]) -> list[dict[str, str]]:
    """Judge the theorem by the measured averages."""
    found = []
    for name, wording in (("corrected", "1 + log T"), ("printed", "log T")):
        means = [(interval(row["averages"]), row) for row in data["rows"]]
        below = sum(mean.high <= row[name] for mean, row in means)
        above = sum(mean.low > row[name] for mean, row in means)
        undecided = f"undecided at {means[0][0].n}"
        verdict = "holds" if below == len(means) else "does not hold" if above else undecided
        worst = max(mean.mean / row[name] for mean, row in means)
        found.append(
            {
                "text": "Theorem 2: the average squared gradient norm is below the "
                f"{name} bound, with {wording}",
                "verdict": verdict,
                "detail": f"so for {below} of {len(means)} horizons T (upper end of the 95 % "
                f"interval); the mean is at most {100 * worst:.0f} % of the bound",
            }
        )
    slope = interval(data["slopes"])
    horizons = [row["steps"] for row in data["rows"]]
    expected = log_slope(horizons, [row["corrected"] for row in data["rows"]])
    verdict = "holds" if slope.low <= expected else "does not hold"
    if slope.reach > 0.1:
        verdict = f"undecided at {slope.n}"
    found.append(
        {
            "text": "Theorem 2: the average squared gradient norm falls at least as fast as the "
            "bound, log T/√T",
            "verdict": verdict,
            "detail": f"slope on log-log axes, fitted seed by seed: {slope}; that of the "
            f"corrected bound is {expected:.3f}",
        }
    )
    return found


def table(data: dict[str, Any]) -> dict[str, Any]:
    """Return the averages beside the bounds."""
    rows = [
        [
            str(row["steps"]),
            str(interval(row["averages"])),
            f"{row['printed']:.3f}",
            f"{row['corrected']:.3f}",
        ]
        for row in data["rows"]
    ]
    return {
        "title": "Theorem 2: average of ||∇L(w_t)||² over a run",
        "columns": ["T", "measured", "printed bound", "corrected bound"],
        "rows": rows,
    }
