"""Plain PyTorch: wrap the optimizer, hand it a closure. `python examples/plain_torch.py`."""

import argparse

import torch
from digits import BATCH, EPOCHS, RHO, accuracy, network, noisy_digits, sgd
from torch.nn import functional as F
from torch.utils.data import DataLoader

from friendly_sam import FriendlySAM


def train(rho: float, epochs: int, seed: int = 0) -> float:
    """Return the test accuracy; a radius of 0 is SGD itself."""
    data, test = noisy_digits(seed=seed)
    model = network(seed, batchnorm=False)
    optimizer = FriendlySAM(sgd(model), rho=rho, model=model)  # was: optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for x, y in DataLoader(data, BATCH, shuffle=True):

            def closure(x=x, y=y):
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                return loss

            optimizer.step(closure)  # was: zero_grad, closure(), optimizer.step()
        scheduler.step()
    return accuracy(model, test)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name, rho in (("SGD", 0.0), (f"F-SAM, rho {RHO}", RHO)):
        results = torch.tensor([train(rho, options.epochs, seed) for seed in range(options.seeds)])
        spread = f" +- {results.std():.1f} (n={len(results)})" if len(results) > 1 else ""
        print(f"{name}: {results.mean():.1f} % of the test digits right{spread}")
