"""Accelerate: reach through its wrapper for `perturbed`, and step by the wrapper.

`python examples/accelerate_loop.py`, or with more processes
`torchrun --nproc-per-node 2 examples/accelerate_loop.py`. Needs the extras lab and hf.
"""

import argparse
from contextlib import nullcontext

import torch
from accelerate import Accelerator
from digits import BATCH, EPOCHS, RHO, accuracy, network, noisy_digits, sgd
from torch.nn import functional as F
from torch.utils.data import DataLoader

from friendly_sam import FriendlySAM


def backward(accelerator, model, micro_batches) -> float:
    """Leave the gradient of all micro-batches together; processes talk once."""
    total = 0.0
    for number, (x, y) in enumerate(micro_batches, 1):
        last = number == len(micro_batches)
        with nullcontext() if last else accelerator.no_sync(model):
            loss = F.cross_entropy(model(x), y) / len(micro_batches)
            accelerator.backward(loss)
        total += loss.item()
    return total


def step(accelerator, model, optimizer, micro_batches, clip: float | None = None) -> float:
    """Take one step with `optimizer`, which `accelerator` prepared; return the loss at w."""
    sharp = optimizer.optimizer  # Accelerate's wrapper hides `perturbed`
    loss = backward(accelerator, model, micro_batches)
    if sharp.ascent_due:
        with sharp.perturbed(scaler=accelerator.scaler):
            backward(accelerator, model, micro_batches)
    if clip is not None:
        accelerator.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    optimizer.zero_grad()
    return loss


def train(rho: float, epochs: int, accumulate: int = 1, precision: str = "no") -> float:
    """Return the test accuracy; a radius of 0 is SGD itself."""
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), mixed_precision=precision)
    data, test = noisy_digits()
    model = network()
    optimizer = FriendlySAM(sgd(model), rho=rho, model=model)
    size = BATCH // accumulate // accelerator.num_processes
    loader = DataLoader(data, size, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer.optimizer, epochs)
    for _ in range(epochs):
        waiting = []
        for batch in loader:
            waiting.append(batch)
            if len(waiting) == accumulate:
                step(accelerator, model, optimizer, waiting, clip=5.0)
                waiting = []
        scheduler.step()
    model = accelerator.unwrap_model(model).cpu()
    accelerator.end_training()
    return accuracy(model, test)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    epochs = parser.parse_args().epochs
    torch.set_num_threads(1)
    for name, rho, accumulate in (
        ("SGD", 0.0, 1),
        (f"F-SAM, rho {RHO}", RHO, 1),
        (f"F-SAM, rho {RHO}, 4 micro-batches", RHO, 4),
    ):
        torch.manual_seed(0)
        result = train(rho, epochs, accumulate)
        Accelerator().print(f"{name}: {result:.1f} % of the test digits right")
