"""A small network and its batches, with the same numbers on every device."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from friendly_sam import SharpnessAware
from friendly_sam.lab.promises.outcome import BrokenPromiseError

INPUTS, HIDDEN, CLASSES, BATCH = 6, 16, 3, 32
LR, MOMENTUM, DECAY = 0.05, 0.9, 1e-3

Backward = Callable[[], Tensor]


def network(device: torch.device, dtype: torch.dtype) -> nn.Sequential:
    """Return the network, with weights that depend on nothing but their place."""
    generator = torch.Generator().manual_seed(0)
    model = nn.Sequential(nn.Linear(INPUTS, HIDDEN), nn.Tanh(), nn.Linear(HIDDEN, CLASSES))
    model = model.to(dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(
                torch.randn(parameter.shape, generator=generator, dtype=torch.float64) * 0.4
            )
    return model.to(dtype=dtype).to(device=device)


def batch(number: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return the inputs and labels of a batch."""
    generator = torch.Generator().manual_seed(1_000 + number)
    x = torch.randn(BATCH, INPUTS, generator=generator, dtype=torch.float64)
    y = torch.randint(CLASSES, (BATCH,), generator=generator)
    return x.to(dtype).to(device), y.to(device)


def sgd(model: nn.Module, lr: float = LR) -> torch.optim.SGD:
    """Return the base optimizer of the checks."""
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=MOMENTUM, weight_decay=DECAY)


def backward(
    model: nn.Module,
    number: int,
    *,
    autocast: bool = False,
    scale: Callable[[Tensor], Tensor] | None = None,
) -> Backward:
    """Return forward and backward on a batch; the loss may be scaled for the backward pass."""
    parameter = next(model.parameters())
    x, y = batch(number, parameter.device, parameter.dtype)

    def run() -> Tensor:
        context: AbstractContextManager[Any] = nullcontext()
        if autocast:
            context = torch.autocast(parameter.device.type, torch.bfloat16)
        with context:
            logits = model(x)
        wide = torch.promote_types(logits.dtype, torch.float32)
        loss = F.cross_entropy(logits.to(wide), y)
        (loss if scale is None else scale(loss)).backward()  # type: ignore[no-untyped-call]
        return loss

    return run


def train(model: nn.Module, optimizer: SharpnessAware, steps: range) -> list[float]:
    """Train on the batches of these numbers; return the losses."""
    return [optimizer.step(backward(model, number)).item() for number in steps]


def weights(model: nn.Module) -> list[Tensor]:
    """Return copies of the weights."""
    return [parameter.detach().clone() for parameter in model.parameters()]


def saved(*states: Any) -> Any:
    """Return states as they come back from a file that runs no code."""
    file = io.BytesIO()
    torch.save(states, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def same(left: list[Tensor], right: list[Tensor], what: str) -> None:
    """Refuse tensors that differ in a bit."""
    for a, b in zip(left, right, strict=True):
        if not torch.equal(a, b):
            most = float((a.double() - b.double()).abs().max())
            raise BrokenPromiseError(f"{what}: differ by up to {most:.3g}")


def starts_from_gradient(optimizer: SharpnessAware) -> bool:
    """Whether a step begins with a pass at w."""
    return optimizer.direction.starts_from == "gradient"


def step_by_hand(
    optimizer: SharpnessAware,
    run: Callable[[], Any],
    scaler: torch.amp.GradScaler | None = None,
) -> None:
    """Take a step as a hand-written loop does, up to the base optimizer's part."""
    if starts_from_gradient(optimizer):
        run()
    if optimizer.ascent_due:
        with optimizer.perturbed(scaler=scaler):
            run()
    else:
        if not starts_from_gradient(optimizer):
            run()
        optimizer.skip(scaler=scaler)
    if scaler is None:
        optimizer.step()
    else:
        scaler.step(optimizer)
        scaler.update()
    optimizer.zero_grad()
