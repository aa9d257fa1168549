"""The density of the Hessian's eigenvalues, by stochastic Lanczos quadrature."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from friendly_sam._machinery.checks import check_count, check_number
from friendly_sam.sharpness.hessian import Trace
from friendly_sam.sharpness.lanczos import Krylov, Progress
from friendly_sam.sharpness.objective import Objective


@dataclass(frozen=True)
class Density:
    """How the eigenvalues of a Hessian are spread."""

    x: Tensor
    """Places on the axis of eigenvalues (float64)."""
    y: Tensor
    """The density there; it integrates to 1."""
    nodes: Tensor
    """Row i: the quadrature nodes of probe i."""
    weights: Tensor
    """Row i: their weights, which add up to 1."""
    width: float
    """Standard deviation of the Gaussian that each node became. Densities of different widths do
    not compare: the wider one looks broader."""
    trace: Trace
    """The trace, from the same products."""
    products: int
    """Hessian-vector products that were used."""
    normalisation: str
    """What BatchNorm did."""

    @property
    def integral(self) -> float:
        """∫ y dx by the trapezoidal rule: 1 but for the grid."""
        return float(torch.trapezoid(self.y, self.x))


def spectral_density(
    objective: Objective,
    *,
    steps: int = 60,
    probes: int = 3,
    points: int = 1024,
    width: float | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Density:
    """Estimate the density of the eigenvalues of ∇²L(w).

        φ(x) = (1/P) Σ_i N(x; λ_i, width²)  ≈  mean over probes of  Σ_k τ_k² N(x; θ_k, width²)

    θ_k are the Ritz values of `steps` Lanczos steps from a random unit vector, τ_k the first
    entries of their eigenvectors (Ghorbani, Krishnan and Xiao, 2019, algorithm 1, which the
    paper's appendix A7 uses).

    Args:
        objective: L.
        steps: Lanczos steps a probe, one product each; the quadrature is exact for polynomials
            of degree 2 steps - 1.
        probes: random start vectors.
        points: places on the axis.
        width: standard deviation of the Gaussian that each node becomes (default: 1 % of the
            range of the nodes).
        seed: of the probes.
        progress: called with (products done, at most) after each product.

    Example:
        >>> import torch
        >>> from friendly_sam.sharpness import Objective, spectral_density
        >>> model = torch.nn.Linear(3, 2)
        >>> data = [(torch.randn(16, 3), torch.randint(2, (16,)))]
        >>> density = spectral_density(Objective(model, torch.nn.functional.cross_entropy, data))
        >>> round(density.integral, 2)
        1.0
    """
    check_count("steps", steps)
    check_count("probes", probes)
    check_count("points", points)
    if points < 2:
        raise ValueError(f"points must be at least 2, not {points}")
    steps = min(steps, objective.dimension)
    generator = torch.Generator().manual_seed(seed)
    nodes, weights, traces, products = [], [], [], 0
    for _ in range(probes):
        krylov = Krylov(objective.hessian_product, objective.random_vector(generator), steps)
        while not krylov.full:
            krylov.extend(generator)
            products += 1
            if progress is not None:
                progress(products, probes * steps)
        values, vectors, _residuals = krylov.ritz()
        nodes.append(values)
        weights.append(vectors[0].square())
        traces.append(objective.dimension * float(krylov.seen[0, 0]))  # P qᵀ H q
    all_nodes, all_weights = torch.stack(nodes), torch.stack(weights)
    if width is None:
        size = float(all_nodes.abs().max())
        reach = float(all_nodes.max() - all_nodes.min())
        if reach <= 1e-9 * size:  # one eigenvalue, many times over, up to rounding
            reach = size
        width = 0.01 * reach or 0.01
    x, y = _smooth(all_nodes, all_weights, points, width)
    mean = math.fsum(traces) / probes
    error = math.nan
    if probes > 1:
        error = math.sqrt(sum((t - mean) ** 2 for t in traces) / (probes - 1) / probes)
    words = objective.normalisation
    return Density(
        x=x,
        y=y,
        nodes=all_nodes,
        weights=all_weights,
        width=width,
        trace=Trace(mean, error, probes, words),
        products=products,
        normalisation=words,
    )


def _smooth(nodes: Tensor, weights: Tensor, points: int, width: float) -> tuple[Tensor, Tensor]:
    low, high = float(nodes.min()), float(nodes.max())
    check_number("width", width, at_least=0)
    if width == 0:
        raise ValueError("width must be greater than 0, not 0")
    # Six widths beyond the outer nodes nothing is left; a grid too coarse for the width would
    # miss the mass of narrow peaks, so it gets as many points as that takes.
    reach = high - low + 12 * width
    count = max(points, math.ceil(4 * reach / width))
    x = torch.linspace(low - 6 * width, high + 6 * width, count, dtype=torch.float64)
    y = torch.zeros_like(x)
    for node, weight in zip(nodes.flatten().tolist(), weights.flatten().tolist(), strict=True):
        y += weight * torch.exp(-0.5 * ((x - node) / width) ** 2)
    return x, y / (len(nodes) * width * math.sqrt(2 * math.pi))
