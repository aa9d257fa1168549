"""The outer eigenvalues of the Hessian, and its trace, without ever forming it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from friendly_sam._machinery.checks import check_count, check_number
from friendly_sam.sharpness.lanczos import Progress, Which, extreme_eigenpairs
from friendly_sam.sharpness.objective import Objective


@dataclass(frozen=True)
class Eigenpairs:
    """Eigenvalues at one end of a Hessian's spectrum, the outermost first."""

    values: Tensor
    """λ_1 ≥ λ_2 ≥ ... (float64, on the CPU)."""
    vectors: Tensor
    """Row i is the unit eigenvector of λ_i, over the objective's weights."""
    residuals: Tensor
    """||H v_i - λ_i v_i||, as Lanczos estimates it."""
    converged: bool
    """Whether every residual is within the tolerance."""
    products: int
    """Hessian-vector products that were used."""
    tolerance: float
    """Residuals relative to |λ_i| that were asked for."""
    normalisation: str
    """What BatchNorm did."""

    @property
    def sharpness(self) -> float:
        """λ_1."""
        return float(self.values[0])

    @property
    def ratio(self) -> float:
        """λ_1 / λ_5, the paper's appendix A7; not a number with fewer than 5 or λ_5 = 0."""
        if len(self.values) < 5 or float(self.values[4]) == 0:
            return math.nan
        return float(self.values[0] / self.values[4])


def top_eigenpairs(
    objective: Objective,
    count: int = 5,
    *,
    tolerance: float = 1e-3,
    which: Which = "largest",
    max_products: int = 400,
    basis: int = 80,
    seed: int = 0,
    progress: Progress | None = None,
) -> Eigenpairs:
    """Find the outermost eigenvalues of ∇²L(w) and their vectors by Lanczos iteration.

    Args:
        objective: L.
        count: how many (5: the paper looks at λ_1 and λ_1/λ_5).
        tolerance: the residual ||H v - λ v|| relative to |λ| at which a pair counts as found.
            The eigenvalue itself is then off by at most that, and usually by its square.
        which: `"largest"`, `"smallest"` or of largest `"magnitude"`.
        max_products: Hessian-vector products at most; `converged` tells whether they sufficed.
        basis: vectors kept at once. Memory is this times the number of weights; a smaller basis
            restarts more often and needs more products.
        seed: of the random start.
        progress: called with (products done, at most) after each product.

    Returns:
        The pairs, their residuals, and whether they converged.

    Example:
        >>> import torch
        >>> from friendly_sam.sharpness import Objective, top_eigenpairs
        >>> model = torch.nn.Linear(2, 1, bias=False, dtype=torch.float64)
        >>> data = [(torch.tensor([[2.0, 0.0], [0.0, 1.0]], dtype=torch.float64), None)]
        >>> half_square = lambda outputs, _: outputs.square().sum() / 2
        >>> found = top_eigenpairs(Objective(model, half_square, data), count=2)
        >>> [round(value, 6) for value in found.values.tolist()], found.converged
        ([4.0, 1.0], True)
    """
    check_count("count", count)
    check_count("max_products", max_products)
    check_count("basis", basis)
    check_number("tolerance", tolerance, at_least=0)
    if count > objective.dimension:
        raise ValueError(f"count must be at most the {objective.dimension} weights, not {count}")
    generator = torch.Generator().manual_seed(seed)
    found = extreme_eigenpairs(
        objective.hessian_product,
        objective.random_vector(generator),
        count,
        tolerance=tolerance,
        which=which,
        max_products=max_products,
        capacity=basis,
        generator=generator,
        progress=progress,
    )
    return Eigenpairs(
        values=found.values,
        vectors=found.vectors,
        residuals=found.residuals,
        converged=found.converged,
        products=found.products,
        tolerance=tolerance,
        normalisation=objective.normalisation,
    )


@dataclass(frozen=True)
class Trace:
    """An estimate of a trace."""

    value: float
    """The mean over probes."""
    standard_error: float
    """Of that mean; not a number with one probe."""
    probes: int
    normalisation: str
    """What BatchNorm did."""


def hessian_trace(
    objective: Objective,
    *,
    probes: int = 20,
    known: Eigenpairs | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Trace:
    """Estimate tr ∇²L(w) = E[zᵀ H z], z of random signs (Hutchinson, 1989).

    With eigenpairs that are known already, only the rest of the spectrum is left to chance: with
    z' = z - Σ_i <v_i, z> v_i, the trace is Σ_i λ_i + E[z'ᵀ H z'] (as in Hutch++, Meyer et al.,
    2021). The outer eigenvalues make most of the variance, so this needs far fewer probes.

    Args:
        objective: L.
        probes: random vectors, each one product.
        known: what `top_eigenpairs` found.
        seed: of the signs.
        progress: called with (products done, of all) after each product.

    Example:
        >>> import torch
        >>> from friendly_sam.sharpness import Objective, hessian_trace
        >>> model = torch.nn.Linear(2, 1, bias=False, dtype=torch.float64)
        >>> data = [(torch.tensor([[2.0, 0.0], [0.0, 1.0]], dtype=torch.float64), None)]
        >>> half_square = lambda outputs, _: outputs.square().sum() / 2
        >>> hessian_trace(Objective(model, half_square, data), probes=2).value
        5.0
    """
    check_count("probes", probes)
    generator = torch.Generator().manual_seed(seed)
    certain = 0.0 if known is None else float(known.values.sum())
    values = []
    for done in range(1, probes + 1):
        signs = torch.randint(2, (objective.dimension,), generator=generator) * 2 - 1
        probe = signs.to(objective.device, objective.dtype)
        if known is not None:
            probe = probe - (known.vectors @ probe) @ known.vectors
        values.append(certain + float(probe @ objective.hessian_product(probe)))
        if progress is not None:
            progress(done, probes)
    mean = math.fsum(values) / probes
    spread = math.nan
    if probes > 1:
        spread = math.sqrt(sum((v - mean) ** 2 for v in values) / (probes - 1) / probes)
    return Trace(mean, spread, probes, objective.normalisation)
