"""What a perturbation is made of, against the step that the library really makes."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from known_hessians import batches, network

from friendly_sam import (
    ASAM,
    MSAM,
    SAM,
    BatchNoise,
    FisherSAM,
    FriendlySAM,
    Gradient,
    ParameterScaled,
    SharpnessAware,
    Stale,
    VaSSO,
)
from friendly_sam.sharpness import Objective, decompose, decompose_step

METHODS = {
    "SAM": lambda base: SAM(base, 0.1),
    "ASAM": lambda base: ASAM(base, 0.5),
    "FisherSAM": lambda base: FisherSAM(base, 0.1),
    "F-SAM": lambda base: FriendlySAM(base, 0.1),
    "F-SAM authors": lambda base: FriendlySAM(base, 0.1, variant="authors"),
    "F-SAM debiased": lambda base: FriendlySAM(base, 0.1, variant="debiased", sigma=0.7),
    "F-SAM projection": lambda base: FriendlySAM(base, 0.1, sigma="projection"),
    "F-ASAM": lambda base: FriendlySAM(base, 0.5, geometry=ParameterScaled(0.0)),
    "VaSSO": lambda base: VaSSO(base, 0.1),
    "MSAM": lambda base: MSAM(base, 0.1),
    "Stale-SAM": lambda base: SharpnessAware(base, 0.1, direction=Stale(Gradient())),
    "Stale-F-SAM": lambda base: SharpnessAware(base, 0.1, direction=Stale(BatchNoise())),
}


def trained(make, steps):
    model = network()
    optimizer = make(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))
    for step in range(steps):
        x, y = batches()[step % 3]

        def closure(x=x, y=y):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)
    return model, optimizer


@pytest.mark.parametrize("steps", [0, 1, 5])
@pytest.mark.parametrize("name", METHODS)
def test_the_perturbation_is_the_one_that_the_optimizer_makes(name, steps):
    model, optimizer = trained(METHODS[name], steps)
    objective = Objective(model, F.cross_entropy, batches())
    batch, full, before = batches()[1], objective.gradient(), objective.weights()
    state = copy.deepcopy(optimizer.state_dict())
    found = decompose_step(objective, optimizer, batch)

    now = optimizer.state_dict()
    assert torch.equal(objective.weights(), before)
    assert repr(now) == repr(state)

    optimizer.zero_grad()
    F.cross_entropy(model(batch[0]), batch[1]).backward()
    with optimizer.perturbed():
        eps = objective.weights() - before
        F.cross_entropy(model(batch[0]), batch[1]).backward()
    if float(eps.norm()) == 0:
        assert math.isnan(found.perturbation_full_cosine)
        return
    cosine = float(eps @ full / eps.norm() / full.norm())
    assert found.perturbation_full_cosine == pytest.approx(cosine, abs=1e-9)
    assert found.full_share == pytest.approx(cosine**2, abs=1e-9)
    averages = optimizer.memory.tensors("ema")
    if averages:
        m = torch.cat([averages[p].flatten() for p in model.parameters()])
        if "debiased" in name:
            m = m / (1 - 0.9 ** (steps + 1))
        assert found.average_error == pytest.approx(float((m - full).norm()), rel=1e-9)
        assert found.average_norm == pytest.approx(float(m.norm()), rel=1e-9)
    else:
        assert math.isnan(found.average_norm)


def test_friendly_sam_removes_the_full_gradient_from_the_perturbation():
    """With full batches the average is the gradient of one loss: what is left is little."""
    model, optimizer = trained(METHODS["F-SAM"], 30)
    objective = Objective(model, F.cross_entropy, batches())
    friendly = decompose_step(objective, optimizer, batches()[0])
    sam = decompose_step(objective, SAM(torch.optim.SGD(model.parameters(), lr=0.1)), batches()[0])
    assert friendly.full_share < sam.full_share
    assert sam.perturbation_full_cosine == pytest.approx(sam.gradient_full_cosine, abs=1e-12)


def test_groups_with_radius_zero_are_left_out():
    model = network()
    groups = [
        {"params": model[0].parameters(), "rho": 0.0},
        {"params": model[2].parameters(), "rho": 0.1},
    ]
    objective = Objective(model, F.cross_entropy, batches())
    optimizer = SAM(torch.optim.SGD(groups, lr=0.1))
    found = decompose_step(objective, optimizer, batches()[0])
    gradient, full = objective.batch_gradient(batches()[0]), objective.gradient()
    gradient[:63] = 0
    cosine = float(gradient @ full / gradient.norm() / full.norm())
    assert found.perturbation_full_cosine == pytest.approx(cosine, abs=1e-12)
    for group in optimizer.param_groups:
        group["rho"] = 0.0
    nothing = decompose_step(objective, optimizer, batches()[0])
    assert math.isnan(nothing.perturbation_full_cosine)


def test_known_vectors():
    g, full = torch.tensor([3.0, 4.0]), torch.tensor([1.0, 0.0])
    found = decompose(
        g, full, average=torch.tensor([1.0, 1.0]), perturbation=torch.tensor([0.0, 2.0])
    )
    assert found.gradient_norm == 5
    assert found.gradient_full_cosine == pytest.approx(0.6)
    assert found.average_full_cosine == pytest.approx(math.sqrt(0.5))
    assert found.full_share == 0
    assert found.average_error == 1
    assert found.relative_average_error == 1


def test_metrics_have_names_and_are_numbers():
    metrics = decompose(torch.tensor([3.0, 4.0]), torch.tensor([1.0, 0.0])).metrics()
    assert metrics["decomposition_gradient_norm"] == 5
    assert "decomposition_average_norm" not in metrics
    assert all(math.isfinite(value) for value in metrics.values())
