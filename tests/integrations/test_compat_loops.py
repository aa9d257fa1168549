"""The training loops of davda54/sam's and the authors' scripts, against the formulas by hand."""

import copy

import pytest
import torch
from family import assert_same, batch, closure_of, network, weights
from torch import nn
from torch.nn import functional as F

from friendly_sam import compat

SGD = {"lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4}
OPTIMIZERS = {
    "SAM": lambda p, base=torch.optim.SGD, **o: compat.SAM(p, base, rho=0.1, **o),
    "adaptive SAM": lambda p, base=torch.optim.SGD, **o: compat.SAM(
        p, base, rho=1.0, adaptive=True, **o
    ),
    "FriendlySAM": lambda p, base=torch.optim.SGD, **o: compat.FriendlySAM(
        p, base, rho=0.1, sigma=1, lmbda=0.6, **o
    ),
    "adaptive FriendlySAM": lambda p, base=torch.optim.SGD, **o: compat.FriendlySAM(
        p, base, rho=1.0, sigma=1, lmbda=0.6, adaptive=True, **o
    ),
}
BASES = {
    "SGD": (torch.optim.SGD, SGD),
    "Adam": (torch.optim.Adam, {"lr": 1e-2}),
    "AdamW": (torch.optim.AdamW, {"lr": 1e-2}),
    "RMSprop": (torch.optim.RMSprop, {"lr": 1e-2}),
    "Adadelta": (torch.optim.Adadelta, {"lr": 1.0}),
}


def loop(model, optimizer, steps, start=0, size=16):
    """The loop of both scripts: two passes, a step after each."""
    for seed in range(start, start + steps):
        closure_of(model, seed, size)()
        optimizer.first_step(zero_grad=True)
        closure_of(model, seed, size)()
        optimizer.second_step(zero_grad=True)


def gradients(model, seed):
    model.zero_grad()
    closure_of(model, seed)()
    return [p.grad.clone() for p in model.parameters()]


def climb(values, direction, rho, adaptive):
    """w + rho T^2 d / ||T d|| with T = |w| or 1, written out."""
    t = [w.abs() if adaptive else torch.ones_like(w) for w in values]
    norm = torch.sqrt(sum(((a * d) ** 2).sum() for a, d in zip(t, direction, strict=True)))
    return [w + rho * a**2 * d / norm for w, a, d in zip(values, t, direction, strict=True)]


@pytest.mark.parametrize("adaptive", [False, True])
def test_first_step_of_sam_climbs_as_the_formula_says(adaptive):
    model = network()
    optimizer = compat.SAM(model.parameters(), torch.optim.SGD, rho=0.3, adaptive=adaptive, **SGD)
    for seed in range(3):
        expected = climb(weights(model), gradients(model, seed), 0.3, adaptive)
        optimizer.first_step(zero_grad=True)
        for a, b in zip(weights(model), expected, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-13)
        closure_of(model, seed)()
        optimizer.second_step(zero_grad=True)


@pytest.mark.parametrize("sigma", [1.0, 0.5])
def test_first_step_of_the_authors_climbs_along_what_the_average_lacks(sigma):
    """Their average starts as the first gradient, and is subtracted before it is updated."""
    model = network()
    optimizer = compat.FriendlySAM(
        model.parameters(), torch.optim.SGD, rho=0.3, sigma=sigma, lmbda=0.6, **SGD
    )
    average = None
    for seed in range(4):
        g = gradients(model, seed)
        if average is None:
            average, direction = g, g
        else:
            direction = [a - sigma * m for a, m in zip(g, average, strict=True)]
            average = [0.6 * m + 0.4 * a for a, m in zip(g, average, strict=True)]
        expected = climb(weights(model), direction, 0.3, adaptive=False)
        optimizer.first_step(zero_grad=True)
        for a, b in zip(weights(model), expected, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
        closure_of(model, seed)()
        optimizer.second_step(zero_grad=True)


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_the_loop_learns_with_any_base(kind, base):
    torch.manual_seed(0)
    model = network()
    make, options = BASES[base]
    optimizer = OPTIMIZERS[kind](model.parameters(), make, **options)
    x, y = batch(0, 64)
    first = F.cross_entropy(model(x), y).item()
    for _ in range(120):
        F.cross_entropy(model(x), y).backward()
        optimizer.first_step(zero_grad=True)
        F.cross_entropy(model(x), y).backward()
        optimizer.second_step(zero_grad=True)
    assert F.cross_entropy(model(x), y).item() < 0.8 * first


def test_second_step_is_the_base_step_from_w_with_the_second_gradient():
    model = network()
    twin = copy.deepcopy(model)
    optimizer = OPTIMIZERS["SAM"](model.parameters(), **SGD)
    base = torch.optim.SGD(twin.parameters(), **SGD)
    for seed in range(4):
        closure_of(model, seed)()
        optimizer.first_step(zero_grad=True)
        closure_of(model, seed)()
        for p, q in zip(model.parameters(), twin.parameters(), strict=True):
            q.grad = p.grad.clone()
        optimizer.second_step(zero_grad=True)
        base.step()
        assert all(p.grad is None or not p.grad.any() for p in model.parameters())
    assert_same(weights(model), weights(twin))


def test_groups_have_their_own_learning_rates():
    model = network()
    groups = [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.0}]
    optimizer = OPTIMIZERS["SAM"](groups, **SGD)
    before = weights(model)
    loop(model, optimizer, 2)
    assert not torch.equal(before[0], weights(model)[0])
    assert_same(before[2:], weights(model)[2:])


@pytest.mark.parametrize("on_base", [False, True])
def test_a_scheduler_drives_either_optimizer(on_base):
    """Without torch's warning that the scheduler stepped before the optimizer did."""
    model = network()
    optimizer = OPTIMIZERS["FriendlySAM"](model.parameters(), **SGD)
    target = optimizer.base_optimizer if on_base else optimizer
    scheduler = torch.optim.lr_scheduler.MultiStepLR(target, [1, 2], gamma=0.1)
    for step, rate in enumerate((0.05, 0.005, 0.0005)):
        for groups in (optimizer.param_groups, optimizer.base_optimizer.param_groups):
            assert groups[0]["lr"] == pytest.approx(rate)
        loop(model, optimizer, 1, step)
        scheduler.step()


def test_groups_stay_shared_after_loading():
    model = network()
    optimizer = OPTIMIZERS["SAM"](model.parameters(), **SGD)
    loop(model, optimizer, 2)
    other = OPTIMIZERS["SAM"](network().parameters(), **SGD)
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    other.param_groups[0]["lr"] = 0.3
    assert other.base_optimizer.param_groups[0]["lr"] == 0.3
    assert len(other.state_dict()["state"]) == len(list(model.parameters()))


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_frozen_and_unused_parameters_stay_where_they_are(kind):
    class Forked(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.once, self.never = (network() for _ in range(3))
            self.frozen = nn.Parameter(torch.ones(3, dtype=torch.float64), requires_grad=False)
            self.both = True

        def forward(self, x):
            return self.used(x) + (self.once(x) if self.both else 0.0) + self.frozen

    model = Forked()
    optimizer = OPTIMIZERS[kind](model.parameters(), lr=0.05)
    before = copy.deepcopy(model.state_dict())
    x, y = batch(0)
    F.cross_entropy(model(x), y).backward()
    optimizer.first_step(zero_grad=True)
    model.both = False
    F.cross_entropy(model(x), y).backward()
    optimizer.second_step(zero_grad=True)
    after = model.state_dict()
    moved = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert moved == {"used"}, "what had a first gradient only comes back to w"


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_no_gradient_and_zero_gradients_are_no_catastrophe(kind):
    model = network()
    optimizer = OPTIMIZERS[kind](model.parameters(), lr=0.05)
    before = weights(model)
    with pytest.warns(UserWarning, match="no gradient to perturb along"):
        optimizer.first_step(zero_grad=True)
    optimizer.second_step(zero_grad=True)
    assert_same(weights(model), before)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.first_step()
    assert_same(weights(model), before)
    optimizer.second_step(zero_grad=True)
    assert_same(weights(model), before)


def test_switching_batchnorm_off_by_hand_in_the_second_pass_still_works():
    """Scripts set momentum to 0 for the second pass; compat knows no model and lets them."""
    model = network(batchnorm=True)
    optimizer = OPTIMIZERS["SAM"](model.parameters(), **SGD)
    norm = model[1]
    twin = copy.deepcopy(norm)
    x, y = batch(0)
    with torch.no_grad():
        twin(model[0](x))
    F.cross_entropy(model(x), y).backward()
    optimizer.first_step(zero_grad=True)
    kept, norm.momentum = norm.momentum, 0
    F.cross_entropy(model(x), y).backward()
    norm.momentum = kept
    optimizer.second_step(zero_grad=True)
    assert_same([norm.running_mean, norm.running_var], [twin.running_mean, twin.running_var])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda p: compat.SAM(p, torch.optim.SGD, rho=-0.1, lr=0.1), ValueError, "rho"),
        (lambda p: compat.FriendlySAM(p, torch.optim.SGD, rho=-1, lr=0.1), ValueError, "rho"),
        (lambda p: compat.FriendlySAM(p, torch.optim.SGD, lmbda=1.5, lr=0.1), ValueError, "decay"),
        (lambda p: compat.SAM([], torch.optim.SGD, lr=0.1), ValueError, "empty parameter list"),
        (
            lambda p: compat.SAM(p, torch.optim.SGD(network().parameters(), lr=0.1)),
            TypeError,
            "must be an optimizer class",
        ),
    ],
)
def test_what_the_scripts_assert_is_an_error(make, error, message):
    with pytest.raises(error, match=message):
        make(network().parameters())
