"""Small problems whose Hessian is known."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from friendly_sam.sharpness import Objective


class Quadratic(nn.Module):
    """L(w) = ½ wᵀ A w: the Hessian is A, everywhere."""

    def __init__(self, matrix: Tensor, start: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(start.clone())
        self.register_buffer("matrix", matrix)

    def forward(self, _: Tensor) -> Tensor:
        return self.weight @ self.matrix @ self.weight / 2


def quadratic_objective(matrix: Tensor, start: Tensor) -> Objective:
    model = Quadratic(matrix, start)
    return Objective(model, lambda output, _: output, [(torch.zeros(1), torch.zeros(1))])


def with_spectrum(eigenvalues: Any, *, seed: int = 0) -> Tensor:
    """A dense symmetric matrix with given eigenvalues."""
    values = torch.as_tensor(eigenvalues, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(len(values), len(values), dtype=torch.float64, generator=generator)
    rotation = torch.linalg.qr(noise)[0]
    return rotation @ torch.diag(values) @ rotation.T


def network(dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 4)).to(dtype)


def batches(sizes: tuple[int, ...] = (13, 8, 5), dtype: torch.dtype = torch.float64) -> list[Any]:
    generator = torch.Generator().manual_seed(4)
    inputs = torch.randn(sum(sizes), 6, generator=generator, dtype=torch.float64).to(dtype)
    targets = torch.randint(4, (sum(sizes),), generator=generator)
    return list(zip(inputs.split(sizes), targets.split(sizes), strict=True))


def dense_hessian(model: nn.Module, data: list[Any]) -> Tensor:
    """The Hessian of the mean loss by plain autograd, as one matrix."""
    inputs = torch.cat([batch[0] for batch in data])
    targets = torch.cat([batch[1] for batch in data])
    names = [name for name, _ in model.named_parameters()]
    shapes = [parameter.shape for parameter in model.parameters()]
    flat = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    def loss(vector: Tensor) -> Tensor:
        pieces = vector.split([shape.numel() for shape in shapes])
        state = {n: p.view(s) for n, p, s in zip(names, pieces, shapes, strict=True)}
        return F.cross_entropy(torch.func.functional_call(model, state, (inputs,)), targets)

    return torch.autograd.functional.hessian(loss, flat)
