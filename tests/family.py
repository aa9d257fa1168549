"""One table of methods for the tests of properties that all of them share, and a small problem."""

import torch
from torch import nn
from torch.nn import functional as F

from friendly_sam import (
    ASAM,
    GSAM,
    MSAM,
    SAM,
    WSAM,
    Average,
    BatchNoise,
    DiagonalFisher,
    FisherSAM,
    FriendlySAM,
    Gradient,
    LookSAM,
    ParameterScaled,
    SharpnessAware,
    Stale,
    SurrogateGap,
    VaSSO,
)

FAMILY = {
    "SAM": SAM,
    "ASAM": ASAM,
    "FisherSAM": FisherSAM,
    "F-SAM": FriendlySAM,
    "F-SAM authors": lambda base, rho=0.05, **o: FriendlySAM(base, rho, variant="authors", **o),
    "F-SAM debiased": lambda base, rho=0.05, **o: FriendlySAM(base, rho, variant="debiased", **o),
    "F-SAM projection": lambda base, rho=0.05, **o: FriendlySAM(base, rho, sigma="projection", **o),
    "F-ASAM": lambda base, rho=0.5, **o: FriendlySAM(base, rho, geometry=ParameterScaled(), **o),
    "F-FisherSAM": lambda base, rho=0.1, **o: FriendlySAM(
        base, rho, geometry=DiagonalFisher(), **o
    ),
    "VaSSO": VaSSO,
    "VaSSO, ASAM's geometry": lambda base, rho=0.5, **o: SharpnessAware(
        base, rho, direction=Average(), geometry=ParameterScaled(), **o
    ),
    "GSAM": GSAM,
    "WSAM": WSAM,
    "LookSAM": lambda base, rho=0.05, **o: LookSAM(base, rho, every=1, **o),
    "F-GSAM": lambda base, rho=0.05, **o: SharpnessAware(
        base, rho, direction=BatchNoise(), descent=SurrogateGap(), **o
    ),
}
ONE_PASS = {
    "MSAM": MSAM,
    "stale SAM": lambda base, rho=0.05, **o: SharpnessAware(
        base, rho, direction=Stale(Gradient()), **o
    ),
    "stale F-SAM": lambda base, rho=0.05, **o: SharpnessAware(
        base, rho, direction=Stale(BatchNoise()), **o
    ),
}
"""Methods whose closure is called once, at w + ε."""
USES_G = ("GSAM", "WSAM", "LookSAM", "F-GSAM")
"""Methods that need the gradient at w after the second pass."""
BASES = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05),
    "SGD with momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-3),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-2),
}


def momentum(params):
    return BASES["SGD with momentum"](params)


def network(dtype=torch.float64, dropout=0.0, batchnorm=False):
    layers = [nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)]
    if batchnorm:
        layers.insert(1, nn.BatchNorm1d(16))
    if dropout:
        layers.insert(-1, nn.Dropout(dropout))
    return nn.Sequential(*layers).to(dtype)


def batch(seed, size=16, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 6, generator=generator, dtype=torch.float64).to(dtype)
    return x, torch.randint(3, (size,), generator=generator)


def closure_of(model, seed, size=16):
    x, y = batch(seed, size, next(model.parameters()).dtype)

    def closure():
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        return loss

    return closure


def train(model, optimizer, steps, start=0):
    return [optimizer.step(closure_of(model, seed)).item() for seed in range(start, start + steps)]


def weights(model):
    return [parameter.detach().clone() for parameter in model.parameters()]


def assert_same(left, right):
    """Bit for bit, NaN included."""
    for a, b in zip(left, right, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a.isnan(), b.isnan())
        assert torch.equal(a.nan_to_num(), b.nan_to_num())
