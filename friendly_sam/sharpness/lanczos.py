"""Lanczos with full reorthogonalisation and thick restarts, for any symmetric product.

Q holds orthonormal rows q_1 ... q_j, and S = Q H Qᵀ is H as those rows see it; the eigenvalues θ
of S (Ritz values) approach the outer ones of H. With H q_j = ... + b q_{j+1}, the residual of a
Ritz pair is ||H v - θ v|| = |b s_j|, s_j the last entry of its eigenvector in S: convergence costs
no product to check (Parlett, The Symmetric Eigenvalue Problem, 1998, chapter 13).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]
Progress = Callable[[int, int], None]
"""Hears how many products are done, and how many there can be at most."""
Which = Literal["largest", "smallest", "magnitude"]


class Krylov:
    """A growing orthonormal basis, and the matrix as that basis sees it.

    Args:
        product: v to H v.
        start: where the basis starts; any vector but 0.
        capacity: vectors that are kept at most.
    """

    def __init__(self, product: Product, start: Tensor, capacity: int) -> None:
        self.product = product
        self.capacity = min(capacity, start.numel())
        self.basis = start.new_empty((self.capacity + 1, start.numel()))
        self.basis[0] = start / start.norm()
        self.seen = torch.zeros((self.capacity + 1,) * 2, dtype=torch.float64)
        self.size = 0
        self.beyond = 0.0
        """b, how much of H q_j lies outside the basis."""

    @property
    def full(self) -> bool:
        """Whether the basis has reached its capacity."""
        return self.size >= self.capacity

    def extend(self, generator: torch.Generator | None = None) -> None:
        """Add one vector to the basis, at the price of one product."""
        j = self.size
        image = self.product(self.basis[j])
        if not bool(image.isfinite().all()):
            raise ValueError("a matrix-vector product is not finite at these weights")
        length = float(image.norm())
        rows = self.basis[: j + 1]
        self.seen[j, j] = float(rows[j] @ image)
        for _ in range(2):  # once leaves rounding errors that grow into ghost eigenvalues
            image = image - (rows @ image) @ rows
        self.beyond = float(image.norm())
        self.size = j + 1
        exhausted = self.beyond <= 10 * torch.finfo(image.dtype).eps * length
        if exhausted:
            # The basis holds an invariant space; go on outside of it with a fresh vector.
            self.beyond = 0.0
            noise = torch.randn(image.numel(), dtype=image.dtype, generator=generator)
            image = noise.to(image.device)
            for _ in range(2):
                image = image - (rows @ image) @ rows
        if self.size < image.numel():
            self.basis[j + 1] = image / image.norm()
            self.seen[j, j + 1] = self.seen[j + 1, j] = self.beyond

    def ritz(self) -> tuple[Tensor, Tensor, Tensor]:
        """Ritz values in ascending order, their eigenvectors in the basis, their residuals."""
        values, vectors = torch.linalg.eigh(self.seen[: self.size, : self.size])
        return values, vectors, (self.beyond * vectors[-1]).abs()

    def restart(self, keep: Tensor) -> None:
        """Shrink the basis to the Ritz vectors `keep` and the vector that would come next."""
        values, vectors, _ = self.ritz()
        chosen = vectors[:, keep]
        last = self.basis[self.size].clone()
        count = len(keep)
        self.basis[:count] = chosen.T.to(self.basis) @ self.basis[: self.size]
        self.basis[count] = last
        self.seen.zero_()
        self.seen[range(count), range(count)] = values[keep]
        self.seen[count, :count] = self.seen[:count, count] = self.beyond * chosen[-1]
        self.size = count


@dataclass(frozen=True)
class Ritz:
    """Eigenpairs as far as they have converged."""

    values: Tensor
    vectors: Tensor
    residuals: Tensor
    converged: bool
    products: int


def extreme_eigenpairs(
    product: Product,
    start: Tensor,
    count: int,
    *,
    tolerance: float,
    which: Which,
    max_products: int,
    capacity: int,
    generator: torch.Generator | None = None,
    progress: Progress | None = None,
) -> Ritz:
    """Find `count` eigenpairs of a symmetric matrix at one end of its spectrum.

    A pair has converged when ||H v - θ v|| <= tolerance max(|θ|, eps^(2/3)): the criterion of
    ARPACK, which scipy's `eigsh` uses.
    """
    if which not in get_args(Which):
        raise ValueError(f"which must be one of {', '.join(get_args(Which))}, not {which!r}")
    krylov = Krylov(product, start, max(capacity, count + 2))
    floor = torch.finfo(start.dtype).eps ** (2 / 3)
    products, converged = 0, False
    while True:
        krylov.extend(generator)
        products += 1
        if progress is not None:
            progress(products, max_products)
        values, vectors, residuals = krylov.ritz()
        order = _order(values, which)
        wanted = order[:count]
        if krylov.size >= count:
            allowed = tolerance * values[wanted].abs().clamp(min=floor)
            converged = bool((residuals[wanted] <= allowed).all())
        if converged or products >= max_products or krylov.size == start.numel():
            break
        if krylov.full:
            krylov.restart(order[: count + (krylov.capacity - count) // 2])
    rows = vectors[:, wanted].T.to(krylov.basis) @ krylov.basis[: krylov.size]
    return Ritz(
        values=values[wanted],
        vectors=rows / rows.norm(dim=1, keepdim=True),
        residuals=residuals[wanted],
        converged=converged,
        products=products,
    )


def _order(values: Tensor, which: Which) -> Tensor:
    key = {"largest": values, "smallest": -values, "magnitude": values.abs()}[which]
    return key.argsort(descending=True)
