"""Theorem 1: the EMA m_T is within O(γ^(1/3)) of the full gradient.

The proof (appendix A1) weighs gradients by λ^(T-t)/Σ, which is the library's
`variant="debiased"`, and gives, with α = 1 - λ and probability 1 - δ,

    ||m_T - ∇L(w_T)|| <= (4 √M √α √ℓ + G β γ/α) / (1 - λ^T)

where ℓ = log(e^(-1/4)/δ) as printed. Solving exp(-ε²/(8 M ||w||²) + 1/4) = δ for ε gives
ℓ = log(e^(+1/4)/δ): that is the corrected bound. α is the one that balances the two terms,
α = (G β γ)^(2/3) / (4^(2/3) M^(1/3) ℓ^(1/3)), with the corrected ℓ.

The theorem speaks of every T > 4/α. How large the error is at one T depends on how fast the weights
move just then, so each run gives the mean over a stretch of T, from γT = 1.25 to γT = 5 (the
descent and some time at the bottom): the same stretch of the way for every learning rate. Measured
at one T, the slope would be that of the place: 0.29 [0.27, 0.31] at γT = 1.25, 0.40 [0.38, 0.42]
at T = 8/α (20 seeds each, the learning rates of `mini`).

The noise alone gives √(M α/(2 - α)), whose slope is 1/3 as α → 0 and a little more before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from friendly_sam.lab.counting import counted
from friendly_sam.lab.paper.theory.problem import Problem, friendly_run
from friendly_sam.lab.statistics import interval, log_slope

DELTA = 0.1
RHO = 0.05
STRETCH = (1.25, 5.0)
"""γT from where to where the error is averaged."""
PRINTED = math.log(math.exp(-1 / 4) / DELTA)
CORRECTED = math.log(math.exp(1 / 4) / DELTA)


def balanced_alpha(problem: Problem, lr: float) -> float:
    """1 - λ for which the two terms of the bound are equal."""
    drift = problem.bound * problem.beta * lr
    return math.pow(drift, 2 / 3) / math.pow(16 * problem.variance * CORRECTED, 1 / 3)


def error_bound(problem: Problem, lr: float, alpha: float, steps: int, confidence: float) -> float:
    """The right-hand side; `confidence` is ℓ."""
    noise = 4 * math.sqrt(problem.variance * alpha * confidence)
    drift = problem.bound * problem.beta * lr / alpha
    return (noise + drift) / (1 - (1 - alpha) ** steps)


def measure(rates: Sequence[float], seeds: int, progress: Callable[[str], None]) -> dict[str, Any]:
    """Measure ||m_T - ∇L(w_T)|| for each learning rate and seed."""
    problem = Problem()
    rows: list[dict[str, Any]] = []
    for lr in rates:
        alpha = balanced_alpha(problem, lr)
        first, steps = (math.ceil(place / lr) for place in STRETCH)
        if first <= 4 / alpha or alpha >= 1:
            raise ValueError(f"rates must be small enough for T > 4/α, not {lr:g}")
        work = f"{counted(steps, 'step')}, {counted(seeds, 'seed')}"
        progress(f"theorem 1: learning rate {lr:g}, {work}")
        row: dict[str, Any] = {"lr": lr, "alpha": alpha, "first": first, "steps": steps}
        row["printed"] = error_bound(problem, lr, alpha, steps, PRINTED)
        row["corrected"] = error_bound(problem, lr, alpha, steps, CORRECTED)
        row |= {"errors": [], "largest": [], "above_printed": 0, "above_corrected": 0}
        for seed in range(seeds):
            run = friendly_run(
                problem,
                steps=steps,
                lr=lr,
                seed=seed,
                rho=RHO,
                decay=1 - alpha,
                variant="debiased",
            )
            errors = [float((s.average - s.full).norm()) for s in islice(run, first - 1, None)]
            row["errors"].append(sum(errors) / len(errors))
            row["largest"].append(max(errors))
            for name in ("printed", "corrected"):
                row[f"above_{name}"] += sum(error > row[name] for error in errors)
        rows.append(row)
    slopes = [log_slope(rates, [row["errors"][seed] for row in rows]) for seed in range(seeds)]
    return {"rows": rows, "slopes": slopes, "delta": DELTA}


def claims(data: dict[str, Any]) -> list[dict[str, str]]:
    """Judge the theorem by the measured errors."""
    rows = data["rows"]
    total = sum(len(row["errors"]) * (row["steps"] - row["first"] + 1) for row in rows)
    found = []
    for name, wording in (("corrected", "log(e^(+1/4)/δ)"), ("printed", "log(e^(-1/4)/δ)")):
        above = sum(row[f"above_{name}"] for row in rows)
        worst = max(max(row["largest"]) / row[name] for row in rows)
        found.append(
            {
                "text": f"Theorem 1: with probability 1 - δ = {1 - data['delta']:g} the error of "
                f"the EMA is below the {name} bound, {wording}",
                "verdict": "holds" if above <= data["delta"] * total else "does not hold",
                "detail": f"above it at {above:,} of {counted(total, 'step')}; the largest error "
                f"is {100 * worst:.0f} % of the bound",
            }
        )
    slope = interval(data["slopes"])
    verdict = "holds" if slope.high >= 1 / 3 else "does not hold"
    if slope.reach > 0.1:
        verdict = f"undecided at {slope.n}"
    found.append(
        {
            "text": "Theorem 1: the error falls at least as γ^(1/3) when λ = 1 - C γ^(2/3)",
            "verdict": verdict,
            "detail": f"slope on log-log axes, fitted seed by seed: {slope}; 1/3 is "
            + ("inside" if slope.contains(1 / 3) else "outside")
            + " the 95 % interval",
        }
    )
    return found


def table(data: dict[str, Any]) -> dict[str, Any]:
    """Return the errors beside the bounds."""
    rows = []
    for row in data["rows"]:
        mean = interval(row["errors"])
        rows.append(
            [
                f"{row['lr']:g}",
                f"{1 - row['alpha']:.4f}",
                f"{row['first']:,} to {row['steps']:,}",
                str(mean),
                f"{max(row['largest']):.3f}",
                f"{row['printed']:.3f}",
                f"{row['corrected']:.3f}",
            ]
        )
    header = ["γ", "λ", "T", "mean error", "largest", "printed bound", "corrected bound"]
    return {"title": "Theorem 1: ||m_T - ∇L(w_T)||", "columns": header, "rows": rows}
