"""What the examples share: noisy digits, a network, and how well it does.

1,000 of scikit-learn's digits, 60 % of them with a label drawn at random, so that a network that
learns all labels by heart does badly on the clean test images.
"""

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import TensorDataset

EPOCHS, BATCH, RHO = 30, 64, 0.4


def noisy_digits(noise: float = 0.6, seed: int = 0) -> tuple[TensorDataset, TensorDataset]:
    """Return 1,000 training images with wrong labels among them, and 797 clean test images."""
    data = load_digits()
    x = torch.tensor(data.data, dtype=torch.float32) / 16
    y = torch.tensor(data.target)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(x), generator=generator)
    x, y = x[order], y[order]
    x = (x - x[:1000].mean()) / x[:1000].std()
    labels = y[:1000].clone()
    wrong = torch.randperm(1000, generator=generator)[: int(1000 * noise)]
    labels[wrong] = torch.randint(10, (len(wrong),), generator=generator)
    return TensorDataset(x[:1000], labels), TensorDataset(x[1000:], y[1000:])


def network(seed: int = 0, batchnorm: bool = False) -> nn.Sequential:
    """Return an MLP 64-256-256-10."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for inputs in (64, 256):
        layers += [nn.Linear(inputs, 256), *([nn.BatchNorm1d(256)] if batchnorm else []), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(256, 10))


@torch.no_grad()
def accuracy(model: nn.Module, test: TensorDataset) -> float:
    """Return the percentage of test images that `model` gets right."""
    x, y = test.tensors
    model.eval()
    logits: Tensor = model(x)
    model.train()
    return 100 * (logits.argmax(1) == y).float().mean().item()


def sgd(model: nn.Module) -> torch.optim.SGD:
    """Return the base optimizer of all examples."""
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
