"""The interfaces of davda54/sam and the authors' code (the golden tests compare the numbers)."""

import copy

import pytest
import torch
from family import assert_same, closure_of, network, weights

from friendly_sam import compat

# These tests look at the weights inside the context and take no gradient there.
pytestmark = pytest.mark.filterwarnings("ignore:.*found no gradient at the perturbed")


SGD = {"lr": 0.05, "momentum": 0.9}
KINDS = {
    "SAM": lambda p: compat.SAM(p, torch.optim.SGD, rho=0.1, **SGD),
    "adaptive SAM": lambda p: compat.SAM(p, torch.optim.SGD, rho=1.0, adaptive=True, **SGD),
    "FriendlySAM": lambda p: compat.FriendlySAM(p, torch.optim.SGD, rho=0.1, sigma=1, **SGD),
}


def two_steps(model, optimizer, seed):
    closure = closure_of(model, seed)
    closure()
    optimizer.first_step(zero_grad=True)
    closure()
    optimizer.second_step(zero_grad=True)


@pytest.mark.parametrize("kind", KINDS)
def test_step_with_a_closure_is_the_two_steps(kind):
    results = []
    for by_closure in (False, True):
        torch.manual_seed(0)
        model = network()
        optimizer = KINDS[kind](model.parameters())
        for seed in range(4):
            if by_closure:
                calls = []
                closure = closure_of(model, seed)
                closure()
                optimizer.step(lambda closure=closure, calls=calls: calls.append(closure()))
                optimizer.zero_grad()
                assert len(calls) == 1
            else:
                two_steps(model, optimizer, seed)
        results.append(weights(model))
    assert_same(*results)


def test_a_step_between_the_two_steps_is_refused_and_moves_nothing():
    model = network()
    optimizer = KINDS["FriendlySAM"](model.parameters())
    before = weights(model)
    closure_of(model, 0)()
    optimizer.first_step(zero_grad=True)
    moved = weights(model)
    with pytest.raises(RuntimeError, match="inside perturbed"):
        optimizer.step(closure_of(model, 0))
    assert_same(weights(model), moved)
    assert any(not torch.equal(a, b) for a, b in zip(moved, before, strict=True))


def test_the_base_optimizer_shares_its_groups():
    optimizer = KINDS["SAM"](network().parameters())
    assert isinstance(optimizer.base_optimizer, torch.optim.SGD)
    optimizer.param_groups[0]["lr"] = 0.7
    assert optimizer.base_optimizer.param_groups[0]["lr"] == 0.7
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer.base_optimizer, 1, 0.1)
    optimizer.base_optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.07)


@pytest.mark.parametrize("kind", KINDS)
def test_first_step_without_zero_grad_keeps_the_gradients(kind):
    model = network()
    optimizer = KINDS[kind](model.parameters())
    closure_of(model, 0)()
    gradients = [p.grad.clone() for p in model.parameters()]
    optimizer.first_step()
    assert_same([p.grad for p in model.parameters()], gradients)
    optimizer.second_step()


@pytest.mark.parametrize("kind", KINDS)
def test_the_state_is_complete(kind):
    model = network()
    optimizer = KINDS[kind](model.parameters())
    for seed in range(3):
        two_steps(model, optimizer, seed)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    for seed in range(3, 6):
        two_steps(model, optimizer, seed)
    other = network()
    resumed = KINDS[kind](other.parameters())
    other.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    for seed in range(3, 6):
        two_steps(other, resumed, seed)
    assert_same(weights(other), weights(model))


def test_steps_out_of_order_are_refused():
    model = network()
    optimizer = KINDS["SAM"](model.parameters())
    with pytest.raises(RuntimeError, match=r"without first_step\(\)"):
        optimizer.second_step()
    closure_of(model, 0)()
    optimizer.first_step()
    with pytest.raises(RuntimeError, match="called twice"):
        optimizer.first_step()
    optimizer.second_step()
    with pytest.raises(TypeError, match="closure must be a function"):
        optimizer.step()
